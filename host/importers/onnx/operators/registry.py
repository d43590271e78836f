"""Which converter makes relax of an ONNX operator: one of ours if there is one, otherwise TVM's.

The modules of this package, and of packages in it, are listed: one that has `CONVERTERS` adds its operators.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from host.errors import ImportFailed
from host.importers.onnx.operators.context import Converter, convert_with_tvm, tvm_converters

# Their function bodies convert better than what TVM makes of them.
_INLINED = frozenset({"Attention"})


@cache
def _own() -> Mapping[str, Converter]:
    found: dict[str, Converter] = {}
    for module in pkgutil.walk_packages([str(Path(__file__).parent)], f"{__package__}."):
        found.update(getattr(importlib.import_module(module.name), "CONVERTERS", {}))
    return found


def supported_operators() -> frozenset[str]:
    """Standard operators that have a converter."""
    return frozenset(_own()) | (frozenset(tvm_converters()) - _INLINED)


def converter_for(operator: str) -> Converter:
    """The converter of a standard operator.

    Raises:
        ImportFailed: there is none.
    """
    if operator in _own():
        return _own()[operator]
    if operator not in supported_operators():
        raise ImportFailed(f"operator {operator} has no conversion", operator)
    return convert_with_tvm
