"""The operations of the graph: all that the compiler knows of them, a module for each or for a family.

The `SPECS` of modules are found by listing this package. An operator that relax has is one module here: it is
read as other operations, or has a tensor expression of its own. An operation that a pass makes is a module
here and the pass.

Inputs of elementwise operations broadcast together. Contractions and pooling have channels last:
    "conv"       x [N, *S, C], weight [*K, C/groups, O]; strides, padding (before + after), dilation, groups
    "conv_transpose"  x [N, *S, C], weight [*K, C, O/groups]; output_padding besides
    "dense"      x [..., K] times constant weight [K, N]
    "matmul"     two activations
    "integer_conv", "integer_dense"  the same of bytes into int32, constant weights; a convolution's
                 padding holds `fill`. Arranged for dot products: "dot_conv", "dot_dense"
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Iterator

from host.lowering.spec import OperatorTable, OpSpec


@functools.cache
def known_operators() -> OperatorTable:
    """All operations of this package."""
    return OperatorTable.of(_listed())


def _listed() -> Iterator[OpSpec]:
    for module in pkgutil.walk_packages(__path__, f"{__name__}."):
        yield from getattr(importlib.import_module(module.name), "SPECS", ())
