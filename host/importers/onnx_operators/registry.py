"""Which converter makes relax of an ONNX operator: one of ours if there is one, otherwise TVM's."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from host.errors import ImportFailed
from host.importers.onnx_operators import (
    arithmetic,
    fourier,
    indexing,
    normalization,
    padding,
    quantized,
    recurrent,
    reduction,
    resizing,
    selection,
    shaping,
    spatial,
)
from host.importers.onnx_operators.context import Converter
from host.importers.onnx_operators.stock import convert_with_tvm, stock_converters

_FAMILIES = (
    arithmetic,
    fourier,
    indexing,
    normalization,
    padding,
    quantized,
    recurrent,
    reduction,
    resizing,
    selection,
    shaping,
    spatial,
)

# Their function bodies convert better than what TVM makes of them.
_INLINED = frozenset({"Attention"})


@cache
def _own() -> Mapping[str, Converter]:
    return {name: converter for family in _FAMILIES for name, converter in family.CONVERTERS.items()}


def supported_operators() -> frozenset[str]:
    """Standard operators that have a converter."""
    return frozenset(_own()) | (frozenset(stock_converters()) - _INLINED)


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
