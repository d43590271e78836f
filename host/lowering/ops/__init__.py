"""The operations of the graph: all that the compiler knows of them, a module for each or for a family.

The `SPECS` of modules are found by listing this package; an installed package adds more by entry points of
the group `edgetlm.operators`. An operator that relax has is one module here: it is read as other operations,
or has a tensor expression of its own. An operation that a pass makes is a module here, which names the pass.

Inputs of elementwise operations broadcast together. Contractions and pooling have channels last:
    "conv"       x [N, *S, C], weight [*K, C/groups, O]; strides, padding (before + after), dilation, groups
    "conv_transpose"  x [N, *S, C], weight [*K, C, O/groups]; output_padding besides
    "dense"      x [..., K] times constant weight [K, N]
    "matmul"     two activations
    "integer_conv", "integer_dense"  the same of bytes into int32, constant weights; a convolution's
                 padding holds `fill`. Arranged for dot products: "dot_conv", "dot_dense"
    "integer_depthwise_conv"  the same of each channel by itself, weight [*K, C]: "dot_depthwise_conv"
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Iterator

from host.errors import LoweringError, UserError
from host.extensions import extensions
from host.lowering.spec import OperatorTable, OpSpec


@functools.cache
def known_operators() -> OperatorTable:
    """All operations of this package and of installed ones.

    Raises:
        UserError: an installed package's operation cannot be used.
    """
    table = OperatorTable.of(_listed())
    for extension in extensions("operators").values():
        spec = extension.load(lambda one: isinstance(one, OpSpec), "object of host.lowering.spec.OpSpec")
        try:
            table = table.with_specs(spec)
        except LoweringError as error:
            raise UserError(f"{extension.title}: {error}") from error
    return table


def _listed() -> Iterator[OpSpec]:
    for module in pkgutil.walk_packages(__path__, f"{__name__}."):
        yield from getattr(importlib.import_module(module.name), "SPECS", ())
