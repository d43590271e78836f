"""Convolutions whose windows are moved point by point."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, te, tirx

from host.importers.onnx.operators.context import (
    Attributes,
    Context,
    Converter,
    Inputs,
    dtype_of,
    get,
    shape_of,
)

# Pixels around a point: 0 and 1 are above it, 0 and 2 on its left.
_CORNERS = 4


def _deform_conv(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    """The points of all windows, interpolated, times the weights: one product."""
    shape, kernel = shape_of(context, inputs[0]), shape_of(context, inputs[1])
    if len(shape) != 4:
        raise context.fail(f"images of {len(shape) - 2} dimensions have no conversion")
    groups, bias = int(attributes.get("group", 1)), get(inputs, 3)
    rows, columns = shape_of(context, inputs[2])[2:]
    windows, taps, made = shape[0] * rows * columns, kernel[2] * kernel[3], kernel[0]
    inner = taps * shape[1] // groups
    points = _points(context, inputs, attributes)
    # Of a window, points come first and their channels last: those lie side by side in memory.
    weight = context.emit(relax.op.reshape(inputs[1], (groups, made // groups, *kernel[1:])))
    weight = context.emit(relax.op.permute_dims(weight, [0, 3, 4, 2, 1]))
    if groups == 1:
        points = context.emit(relax.op.reshape(points, (windows, inner)))
        result = context.emit(relax.op.matmul(points, relax.op.reshape(weight, (inner, made))))
    else:
        points = context.emit(relax.op.reshape(points, (windows, taps, groups, shape[1] // groups)))
        points = context.emit(relax.op.permute_dims(points, [2, 0, 1, 3]))
        points = context.emit(relax.op.reshape(points, (groups, windows, inner)))
        weight = context.emit(relax.op.reshape(weight, (groups, inner, made // groups)))
        result = context.emit(relax.op.permute_dims(relax.op.matmul(points, weight), [1, 0, 2]))
    result = context.emit(relax.op.reshape(result, (shape[0], rows, columns, made)))
    if bias is not None:
        result = context.emit(relax.op.add(result, bias))
    return relax.op.permute_dims(result, [0, 3, 1, 2])


def _points(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    """(N * rows * columns, points of a window, C): each between four pixels of a channel.

    A pixel outside of the image is 0, as in torchvision's deform_conv2d, which the operator is after.
    """
    batch, channels, height, width = shape_of(context, inputs[0])
    together = channels // int(attributes.get("offset_group", 1))
    pixels = context.emit(relax.op.permute_dims(inputs[0], [0, 2, 3, 1]))
    pixels = context.emit(relax.op.reshape(pixels, (batch * height * width, channels)))
    offset, mask = inputs[2], get(inputs, 4)
    # Places and shares are tensors of their own: they are the same for all channels that move together, and
    # an index that is read from memory is one that no simplification takes the bounds from.
    places = context.compute(_corners(context, inputs, attributes, False), offset)
    shares = context.compute(
        _corners(context, inputs, attributes, True), offset, *([] if mask is None else [mask])
    )
    windows, taps, _, _ = shape_of(context, places)

    def compute(image: te.Tensor, place: te.Tensor, share: te.Tensor) -> te.Tensor:
        def element(window: Any, tap: Any, c: Any) -> Any:
            near = [(window, tap, tirx.floordiv(c, together), corner) for corner in range(_CORNERS)]
            parts = [image(place(*at), c) * share(*at) for at in near]
            return (parts[0] + parts[1]) + (parts[2] + parts[3])

        return te.compute((windows, taps, channels), element, name="points")

    return context.compute(compute, pixels, places, shares)


def _corners(context: Context, inputs: Inputs, attributes: Attributes, shares: bool) -> Any:
    """A tensor expression (N * rows * columns, taps, offset groups, 4): which pixels, or their shares."""
    batch, _, height, width = shape_of(context, inputs[0])
    kernel = shape_of(context, inputs[1])[2:]
    rows, columns = shape_of(context, inputs[2])[2:]
    strides, dilations = attributes.get("strides", (1, 1)), attributes.get("dilations", (1, 1))
    pads = attributes.get("pads", (0, 0, 0, 0))
    taps, dtype = int(np.prod(kernel)), dtype_of(inputs[0])
    kind = "float64" if dtype == "float64" else "float32"

    def compute(offset: te.Tensor, *mask: te.Tensor) -> te.Tensor:
        def element(window: Any, tap: Any, group: Any, corner: Any) -> Any:
            n, place = tirx.floordiv(window, rows * columns), tirx.floormod(window, rows * columns)
            at = (tirx.floordiv(place, columns), tirx.floormod(place, columns))
            number = group * taps + tap
            total: Any = tirx.const(1, kind)
            index: Any = tirx.Cast("int32", n)
            for axis, size in enumerate((height, width)):
                tapped = tirx.floordiv(tap, kernel[1]) if axis == 0 else tirx.floormod(tap, kernel[1])
                start = at[axis] * strides[axis] - pads[axis] + tapped * dilations[axis]
                position = tirx.Cast(kind, start) + tirx.Cast(kind, offset(n, 2 * number + axis, *at))
                far = tirx.floordiv(corner, 2) if axis == 0 else tirx.floormod(corner, 2)
                first, share = _split(position, size, far, kind)
                index, total = index * size + first, total * share
            if not shares:
                return index
            return tirx.Cast(dtype, total * tirx.Cast(kind, mask[0](n, number, *at)) if mask else total)

        return te.compute(
            (batch * rows * columns, taps, int(attributes.get("offset_group", 1)), _CORNERS),
            element,
            "corners",
        )

    return compute


def _split(position: Any, size: int, far: Any, kind: str) -> tuple[Any, Any]:
    """The pixel before or behind a position along an axis, and its share; 0 outside."""
    # The bounds keep what is far away, or no number, from becoming an index.
    low = tirx.floor(tirx.max(tirx.min(position, tirx.const(size, kind)), tirx.const(-2, kind)))
    pixel = tirx.Cast("int32", low) + tirx.Cast("int32", far)
    behind = position - low
    share = tirx.Select(far == 0, tirx.const(1, kind) - behind, behind)
    inside = tirx.all(pixel >= 0, pixel < size)
    held = tirx.max(tirx.min(pixel, tirx.const(size - 1, "int32")), tirx.const(0, "int32"))
    return held, tirx.Select(inside, share, tirx.const(0, kind))


CONVERTERS: dict[str, Converter] = {"DeformConv": _deform_conv}
