"""Which converter makes relax of an ONNX operator: one of ours if there is one, otherwise TVM's."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from host.errors import ImportFailed

Expression = Any  # relax.Expr, or a tuple of them for several outputs


@dataclass(frozen=True)
class Context:
    """What a converter may use.

    Attributes:
        builder: emits intermediate expressions.
        opset: version of the standard operators.
        outputs: number of outputs that the node names.
        values: all values converted so far, by name.
    """

    builder: relax.BlockBuilder
    opset: int
    outputs: int
    values: Mapping[str, Any]


Converter = Callable[[Context, Sequence[Any], Mapping[str, Any]], Expression]


def _own_converters() -> dict[str, Converter]:
    return {}


def supported_operators() -> frozenset[str]:
    """Standard operators that have a converter."""
    return frozenset(_own_converters()) | frozenset(onnx_frontend._get_convert_map())


def converter_for(operator: str) -> Converter:
    """The converter of a standard operator.

    Raises:
        ImportFailed: there is none.
    """
    own = _own_converters().get(operator)
    if own is not None:
        return own
    stock = onnx_frontend._get_convert_map().get(operator)
    if stock is None:
        raise ImportFailed(f"operator {operator} has no conversion", operator)

    def convert(context: Context, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Expression:
        arguments = onnx_frontend.onnx_input(inputs)
        extended = dict(attributes)
        extended["tvm_custom"] = {"name": operator, "num_outputs": context.outputs}
        function = stock.get_converter(context.opset)
        with contextlib.redirect_stdout(io.StringIO()):  # TVM prints what it then raises
            return function(context.builder, arguments, extended, [dict(context.values), {}])

    return convert
