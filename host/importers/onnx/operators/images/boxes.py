"""Operators of object detection: NonMaxSuppression, RoiAlign."""

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
    convert_with_tvm,
    dtype_of,
    get,
    scalar,
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


def _roi_align(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    """Regions begin half a pixel of the image earlier; TVM takes half a unit of their coordinates instead."""
    data, regions, images = inputs
    usual = b"half_pixel" if context.opset >= 16 else b"output_half_pixel"
    scale = float(attributes.get("spatial_scale", 1.0))
    if attributes.get("coordinate_transformation_mode", usual) == b"half_pixel" and scale not in (0.0, 1.0):
        shift = scalar(0.5 - 0.5 / scale, dtype_of(regions))
        regions = context.emit(relax.op.add(regions, shift))
    return convert_with_tvm(context, [data, regions, images], attributes)


CONVERTERS: dict[str, Converter] = {"NonMaxSuppression": _non_max_suppression, "RoiAlign": _roi_align}
