"""Regions of images as tensors of one size, as ONNX's RoiAlign.

Attributes are `mode`, `samples`, `scale` and `aligned`. Inputs are images (B, H, W, C) and regions (R, 5):
the number of the image, and the corners x, y, x, y, which `scale` makes pixels. The output is (R, P, Q, C).
A region has P by Q bins, each of `samples` by `samples` places, or of about one for each pixel where
`samples` is 0. With "avg" a place is the weighted mean of the four pixels around it, and a bin the mean of
its places. With "max" a bin is the largest of all pixels' weighted values, as the standard and ONNX Runtime
have it. A place that is more than a pixel outside of the image is zero. Without `aligned` a region is at
least a pixel large. A region without a place is zero.

A bin is a step of its own: it computes each place and its weights once and adds all channels, which lie one
after another. More channels than a small array on the stack holds are several steps.
"""

from __future__ import annotations

import math

from tvm import tirx

from host.errors import LoweringError
from host.lowering.builder import Builder
from host.lowering.graph import Node, Value
from host.lowering.ops.image_layout import channels_last, order
from host.lowering.reader.call import OperatorCall
from host.lowering.script import buffer_text, function_of_script
from host.lowering.spec import OpSpec

OPERATION = "roi_align"
# Channels of a step, at most: their sums lie on the stack of a thread.
_MOST_CHANNELS = 256


def _read(builder: Builder, call: OperatorCall) -> Value:
    attrs, data, layout = call.attrs, call.value(0), str(call.attrs.layout)
    last, scale = channels_last(layout), float(attrs.spatial_scale)
    if not math.isfinite(scale):
        raise LoweringError(f"the scale of RoiAlign's regions is {scale}; deploy with --backend onnxruntime")
    result = builder.one(
        OPERATION,
        [builder.transpose(data, order(layout, last)), builder.cast(call.value(1), data.dtype)],
        tuple(call.shape[axis] for axis in order(layout, last)),
        call.dtype,
        mode=str(attrs.mode),
        samples=max(int(attrs.sample_ratio), 0),
        scale=scale,
        aligned=bool(attrs.aligned),
    )
    return builder.transpose(result, order(last, layout))


def pooling_function(node: Node) -> tirx.PrimFunc:
    """The function of a "roi_align" node; arguments are its inputs and then its output."""
    return function_of_script(_text(node))


def _text(node: Node) -> str:
    """TVMScript of the function: bin by bin, place by place."""
    images, regions = node.inputs
    _, rows, columns, channels = images.shape
    count, high, wide, _ = node.output.shape
    dtype, average = images.dtype, node.attrs["mode"] == "avg"
    number, tile = f"T.{dtype}", _channels(channels)
    taps = [
        f"weight[{2 * i + j}] * images[image[0], corner[{i}], corner[{2 + j}], vb * {tile} + c]"
        for i in range(2)
        for j in range(2)
    ]
    if average:
        combined = f"total[c] + ({' + '.join(taps)})"
    else:
        combined = f"T.max(total[c], T.max(T.max({taps[0]}, {taps[1]}), T.max({taps[2]}, {taps[3]})))"
    outside = ["else:", f"    for c in range({tile}):", f"        total[c] = T.max(total[c], {number}(0))"]
    start = f"{number}(0)" if average else f"{number}('-inf')"
    # The mean of no places is zero, and so is their maximum.
    divided = f"total[c] / T.cast(grid[0] * grid[1], '{dtype}')" if average else "total[c]"
    inside = " and ".join(
        f"at[{axis}] >= {number}(-1) and at[{axis}] <= {number}({size})"
        for axis, size in enumerate((rows, columns))
    )
    return f"""
@T.prim_func(s_tir=True, private=True)
def function(
    images: {buffer_text(images)}, regions: {buffer_text(regions)}, result: {buffer_text(node.output)},
) -> None:
    for r, p, q, b in T.grid({count}, {high}, {wide}, {channels // tile}):
        with T.sblock("bins"):
            vr, vp, vq, vb = T.axis.remap("SSSS", [r, p, q, b])
            total = T.sblock_alloc_buffer(({tile},), "{dtype}", scope="local")
            image = T.sblock_alloc_buffer((1,), "int32", scope="local")
            # Of both directions: where the region begins, the size of a bin, and the places in a bin.
            start = T.sblock_alloc_buffer((2,), "{dtype}", scope="local")
            step = T.sblock_alloc_buffer((2,), "{dtype}", scope="local")
            grid = T.sblock_alloc_buffer((2,), "int32", scope="local")
            at = T.sblock_alloc_buffer((2,), "{dtype}", scope="local")
            corner = T.sblock_alloc_buffer((4,), "int32", scope="local")
            weight = T.sblock_alloc_buffer((4,), "{dtype}", scope="local")
            image[0] = T.cast(regions[vr, 0], "int32")
{_direction(node, 0, high)}
{_direction(node, 1, wide)}
            for c in range({tile}):
                total[c] = {start}
            for k in range(grid[0] * grid[1]):
{_at(dtype, 0, "vp", "k // grid[1]")}
{_at(dtype, 1, "vq", "k % grid[1]")}
                if {inside}:
{_neighbours(dtype, 0, rows)}
{_neighbours(dtype, 1, columns)}
                    for c in range({tile}):
                        total[c] = {combined}
{"" if average else _lines(16, outside)}
            for c in range({tile}):
                result[vr, vp, vq, vb * {tile} + c] = T.if_then_else(
                    grid[0] * grid[1] > 0, {divided}, {number}(0)
                )
"""


def _channels(channels: int) -> int:
    """Channels of a step: the largest divisor that is small enough."""
    return max(size for size in range(1, _MOST_CHANNELS + 1) if channels % size == 0)


def _direction(node: Node, axis: int, bins: int) -> str:
    """Text that finds where a region begins, the size of its bins and the places in each; axis 0 is y."""
    dtype, samples = node.inputs[0].dtype, node.attrs["samples"]
    number, scale = f"T.{dtype}", node.attrs["scale"]
    first, last = (f"regions[vr, {corner}] * {number}({scale!r})" for corner in (2 - axis, 4 - axis))
    size = f"{last} - {first}"
    if not node.attrs["aligned"]:
        size = f"T.max({size}, {number}(1))"
    lines = [f"start[{axis}] = {first}", f"step[{axis}] = ({size}) / {number}({bins})"]
    places = str(samples) if samples else f"T.max(T.cast(T.ceil(step[{axis}]), 'int32'), 0)"
    return _lines(12, [*lines, f"grid[{axis}] = {places}"])


def _at(dtype: str, axis: int, part: str, place: str) -> str:
    """Text that finds the coordinate of a place in a bin."""
    inner = f"(T.cast({place}, '{dtype}') + T.{dtype}(0.5)) * step[{axis}] / T.cast(grid[{axis}], '{dtype}')"
    return _lines(16, [f"at[{axis}] = start[{axis}] + T.cast({part}, '{dtype}') * step[{axis}] + {inner}"])


def _neighbours(dtype: str, axis: int, size: int) -> str:
    """Text that finds the two pixels beside a place along one direction, and what they weigh."""
    at, low, high = f"at[{axis}]", f"corner[{2 * axis}]", f"corner[{2 * axis + 1}]"
    lines = [
        f"{at} = T.min(T.max({at}, T.{dtype}(0)), T.{dtype}({size - 1}))",
        f"{low} = T.cast({at}, 'int32')",
        f"{high} = T.min({low} + 1, {size - 1})",
        f"{at} = {at} - T.cast({low}, '{dtype}')",
    ]
    if axis == 1:
        lines += [
            f"weight[{2 * i + j}] = {_share(dtype, 0, i)} * {_share(dtype, 1, j)}"
            for i in (0, 1)
            for j in (0, 1)
        ]
    return _lines(20, lines)


def _share(dtype: str, axis: int, upper: int) -> str:
    return f"at[{axis}]" if upper else f"(T.{dtype}(1) - at[{axis}])"


def _lines(indent: int, lines: list[str]) -> str:
    return "\n".join(" " * indent + line for line in lines)


SPECS: tuple[OpSpec, ...] = (OpSpec(OPERATION, read={"vision.roi_align": _read}, function=pooling_function),)
