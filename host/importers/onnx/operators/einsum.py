"""Einstein sums, as relax has them: lowering reads them as products."""

from __future__ import annotations

from typing import Any

from tvm import relax

from host.importers.onnx.operators.context import Attributes, Context, Converter, Inputs


def _einsum(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    equation = attributes["equation"]
    text = equation.decode() if isinstance(equation, bytes) else str(equation)
    return relax.op.einsum(relax.Tuple(list(inputs)), text.replace(" ", ""))


CONVERTERS: dict[str, Converter] = {"Einsum": _einsum}
