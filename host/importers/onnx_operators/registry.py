"""Which converter makes relax of an ONNX operator: one of ours if there is one, otherwise TVM's."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from tvm.relax.frontend.onnx import onnx_frontend

from host.errors import ImportFailed
from host.importers.onnx_operators import (
    arithmetic,
    indexing,
    normalization,
    padding,
    recurrent,
    reduction,
    resizing,
    shaping,
)
from host.importers.onnx_operators.context import Context, Converter

_FAMILIES = (arithmetic, indexing, normalization, padding, recurrent, reduction, resizing, shaping)

# Their function bodies convert better than what TVM makes of them.
_INLINED = frozenset({"Attention"})


@cache
def _own() -> Mapping[str, Converter]:
    return {name: converter for family in _FAMILIES for name, converter in family.CONVERTERS.items()}


@cache
def _stock() -> Mapping[str, Any]:
    return dict(onnx_frontend._get_convert_map())


def supported_operators() -> frozenset[str]:
    """Standard operators that have a converter."""
    return frozenset(_own()) | (frozenset(_stock()) - _INLINED)


def converter_for(operator: str) -> Converter:
    """The converter of a standard operator.

    Raises:
        ImportFailed: there is none.
    """
    if operator in _own():
        return _own()[operator]
    if operator not in _stock():
        raise ImportFailed(f"operator {operator} has no conversion", operator)
    return _convert_with_tvm


def _convert_with_tvm(context: Context, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    arguments = onnx_frontend.onnx_input(inputs)
    extended = dict(attributes) | {"tvm_custom": {"name": context.operator, "num_outputs": len(context.outputs)}}
    function = _stock()[context.operator].get_converter(context.opset)
    with contextlib.redirect_stdout(io.StringIO()):  # TVM prints what it then raises
        return function(context.builder, arguments, extended, [dict(context.values), {}])
