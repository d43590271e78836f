"""Operators of object detection: NonMaxSuppression."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from host.importers.onnx.operators.context import (
    Attributes,
    Context,
    Converter,
    Inputs,
    constant,
    dtype_of,
    get,
    shape_of,
)
from host.importers.own_operator import emit_own


def _non_max_suppression(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    """As many boxes as the model declares to keep."""
    boxes, scores = inputs[:2]
    out = context.output_shapes[0]
    if out is None:
        raise context.fail("how many results it has depends on the values")
    batch, _, count = shape_of(context, scores)
    if shape_of(context, boxes) != (batch, count, 4):
        raise context.fail("its boxes and scores do not fit together")
    dtype = dtype_of(boxes)
    numbers = [
        _number(context, get(inputs, index), default, kind)
        for index, default, kind in ((2, 0, "int64"), (3, 0.0, dtype), (4, -np.inf, dtype))
    ]
    options = {"centred": bool(attributes.get("center_point_box", 0))}
    results = emit_own(
        context.builder, "non_max_suppression", [boxes, scores, *numbers], options, [(out, "int64")]
    )
    return results[0]


def _number(context: Context, given: Any, default: float, dtype: str) -> Any:
    """An optional number, as a tensor of one element."""
    if given is None:
        return constant(np.array([default], dtype))
    return context.emit(relax.op.reshape(context.emit(relax.op.astype(given, dtype)), (1,)))


CONVERTERS: dict[str, Converter] = {"NonMaxSuppression": _non_max_suppression}
