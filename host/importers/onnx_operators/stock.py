"""TVM's own converters."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from tvm.relax.frontend.onnx import onnx_frontend

from host.importers.onnx_operators.context import Context


@cache
def stock_converters() -> Mapping[str, Any]:
    """TVM's converter classes by operator name."""
    return dict(onnx_frontend._get_convert_map())


def convert_with_tvm(context: Context, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """What TVM makes of a node."""
    arguments = onnx_frontend.onnx_input(inputs)
    extended = dict(attributes) | {
        "tvm_custom": {"name": context.operator, "num_outputs": len(context.outputs)}
    }
    function = stock_converters()[context.operator].get_converter(context.opset)
    with contextlib.redirect_stdout(io.StringIO()):  # TVM prints what it then raises
        return function(context.builder, arguments, extended, [dict(context.values), {}])
