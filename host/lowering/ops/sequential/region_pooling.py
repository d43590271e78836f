"""Regions of images as tensors of one size, as ONNX's RoiAlign.

Attributes are `mode`, `samples`, `scale` and `aligned`. Inputs are images (B, H, W, C) and regions (R, 5):
the number of the image, and the corners x, y, x, y, which `scale` makes pixels. The output is (R, P, Q, C).
A region has P by Q bins, each of `samples` by `samples` places, or of about one for each pixel where
`samples` is 0. With "avg" a place is the weighted mean of the four pixels around it, and a bin the mean of
its places. With "max" a bin is the largest of all pixels' weighted values, as the standard and ONNX Runtime
have it, and NaN where one is: what ONNX Runtime gives depends on where it is. A place that is more than a
pixel outside of the image is zero. Without `aligned` a region is at least a pixel large. A region without a
place is zero, and so is one whose size is not a number.

A bin is a step of its own: it computes each place and its weights once and adds all channels, which lie one
after another. More channels than a small array on the stack holds are several steps.

Where `samples` is 0, places are at least half a pixel apart unless there is only one. A step visits those
near the image, so its time is bounded by the size of the image and not by that of the region. The others
are zero and count in the mean.
"""

from __future__ import annotations

import math

from tvm import tirx

from host.errors import LoweringError
from host.lowering.builder import Builder
from host.lowering.graph import Node, Value
from host.lowering.ops.image_layout import channels_last, order
from host.lowering.reader.call import OperatorCall
from host.lowering.script import buffer_text, extreme_text, function_of_script, step_text
from host.lowering.spec import OpSpec

OPERATION = "roi_align"
# Channels of a step, at most: their sums lie on the stack of a thread.
_MOST_CHANNELS = 256
# Places of a bin where the size of its region decides, usually.
_USUAL_PLACES = 9
# Places of a bin in one direction, at most. Of so many the coordinates in float32 are no longer distinct.
_MOST_PLACES = 1 << 30


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
    combined = _combined(taps, average, dtype)
    held = extreme_text("max", "total[c]", f"{number}(0)", dtype)
    outside = ["else:", f"    for c in range({tile}):", f"        total[c] = {held}"]
    # A place that is not visited is zero.
    all_visited = "visits[0] == grid[0] and visits[1] == grid[1]"
    start = f"{number}(0)" if average else f"T.if_then_else({all_visited}, {number}('-inf'), {number}(0))"
    # The mean of no places is zero, and so is their maximum.
    divided = "total[c] / places[0]" if average else "total[c]"
    return f"""
@T.prim_func(s_tir=True, private=True)
def function(
    images: {buffer_text(images)}, regions: {buffer_text(regions)}, result: {buffer_text(node.output)},
) -> None:
    for r, p, q, b in T.grid({count}, {high}, {wide}, {channels // tile}):
        with T.sblock("bins"):
            vr, vp, vq, vb = T.axis.remap("SSSS", [r, p, q, b])
            {step_text(_operations(node, tile), "result")}
            T.reads(
                images[0:{images.shape[0]}, 0:{rows}, 0:{columns}, vb * {tile} : vb * {tile} + {tile}],
                regions[vr, 0:5]
            )
            T.writes(result[vr, vp, vq, vb * {tile} : vb * {tile} + {tile}])
            total = T.sblock_alloc_buffer(({tile},), "{dtype}", scope="local")
            image = T.sblock_alloc_buffer((1,), "int32", scope="local")
            # Of both directions: where the bin begins, its size, its places, the first of those that are
            # visited, and how many are.
            start = T.sblock_alloc_buffer((2,), "{dtype}", scope="local")
            step = T.sblock_alloc_buffer((2,), "{dtype}", scope="local")
            grid = T.sblock_alloc_buffer((2,), "int32", scope="local")
            first = T.sblock_alloc_buffer((2,), "int32", scope="local")
            visits = T.sblock_alloc_buffer((2,), "int32", scope="local")
            places = T.sblock_alloc_buffer((1,), "{dtype}", scope="local")
            at = T.sblock_alloc_buffer((2,), "{dtype}", scope="local")
            corner = T.sblock_alloc_buffer((4,), "int32", scope="local")
            weight = T.sblock_alloc_buffer((4,), "{dtype}", scope="local")
            image[0] = T.cast(regions[vr, 0], "int32")
{_direction(node, 0, high, "vp")}
{_direction(node, 1, wide, "vq")}
            # As a real number: the product of whole ones may overflow.
            places[0] = T.cast(grid[0], "{dtype}") * T.cast(grid[1], "{dtype}")
            for c in range({tile}):
                total[c] = {start}
            for i in range(visits[0]):
{_at(dtype, 0, "i", 16)}
                if {_inside(dtype, 0, rows)}:
{_neighbours(dtype, 0, rows, 20)}
                    for j in range(visits[1]):
{_at(dtype, 1, "j", 24)}
                        if {_inside(dtype, 1, columns)}:
{_neighbours(dtype, 1, columns, 28)}
                            for c in range({tile}):
{_lines(32, combined)}
{"" if average else _lines(24, outside)}
{"" if average else _lines(16, outside)}
            for c in range({tile}):
                result[vr, vp, vq, vb * {tile} + c] = T.if_then_else(
                    places[0] > {number}(0), {divided}, {number}(0)
                )
"""


def _operations(node: Node, channels: int) -> float:
    """About how many operations an element takes: a bin computes its places once for all channels."""
    places = node.attrs["samples"] ** 2 or _USUAL_PLACES
    return places * (1 + 40 / channels)


def _combined(taps: list[str], average: bool, dtype: str) -> list[str]:
    """Lines that add the weighted pixels of a place to the sum of a bin, or to its maximum."""
    if average:
        return [f"total[c] = total[c] + ({' + '.join(taps)})"]
    return [f"total[c] = {extreme_text('max', 'total[c]', tap, dtype)}" for tap in taps]


def _channels(channels: int) -> int:
    """Channels of a step: the largest divisor that is small enough."""
    return max(size for size in range(1, _MOST_CHANNELS + 1) if channels % size == 0)


def _direction(node: Node, axis: int, bins: int, part: str) -> str:
    """Text that finds where a bin begins, its size, its places and which are visited; axis 0 is y."""
    dtype, samples = node.inputs[0].dtype, node.attrs["samples"]
    number, scale = f"T.{dtype}", node.attrs["scale"]
    low, high = (f"regions[vr, {corner}] * {number}({scale!r})" for corner in (2 - axis, 4 - axis))
    size = f"{high} - {low}"
    if not node.attrs["aligned"]:
        size = f"T.max({size}, {number}(1))"
    lines = [
        f"step[{axis}] = ({size}) / {number}({bins})",
        f"start[{axis}] = {low} + T.cast({part}, '{dtype}') * step[{axis}]",
    ]
    if samples:
        lines += [f"grid[{axis}] = {samples}", f"first[{axis}] = 0", f"visits[{axis}] = {samples}"]
    else:
        lines += _places_near_the_image(dtype, axis, node.inputs[0].shape[1 + axis])
    return _lines(12, lines)


def _places_near_the_image(dtype: str, axis: int, size: int) -> list[str]:
    """Lines that find how many places a bin has, about one for each pixel, and which may lie in the image.

    Place i is at start + (i + 1/2) * step / grid, and lies in the image from -1 to `size`. A place more on
    either side is visited, because coordinates are rounded. What is not a number compares as false, so a
    bin with such a coordinate visits nothing.
    """
    number, step, grid = f"T.{dtype}", f"step[{axis}]", f"grid[{axis}]"
    most = min(float(_MOST_PLACES), float(tirx.max_value(dtype).value))
    lines = [
        f"{grid} = 0",
        f"if {step} > {number}(0):",
        f"    {grid} = T.cast(T.ceil(T.min({step}, {number}({most!r}))), 'int32')",
    ]
    for name, end, margin in (("first", -1, -1.5), ("visits", size, 1.5)):
        lines += [
            f"at[{axis}] = ({number}({end}) - start[{axis}]) / {step} * T.cast({grid}, '{dtype}')",
            f"at[{axis}] = at[{axis}] + {number}({margin})",
            f"{name}[{axis}] = 0",
            f"if at[{axis}] > {number}(0):",
            f"    {name}[{axis}] = T.cast(T.min(at[{axis}], T.cast({grid}, '{dtype}')), 'int32')",
        ]
    return [*lines, f"visits[{axis}] = T.max(visits[{axis}] - first[{axis}], 0)"]


def _at(dtype: str, axis: int, visit: str, indent: int) -> str:
    """Text that finds the coordinate of a place in a bin."""
    place = f"T.cast(first[{axis}] + {visit}, '{dtype}') + T.{dtype}(0.5)"
    inner = f"({place}) * step[{axis}] / T.cast(grid[{axis}], '{dtype}')"
    return _lines(indent, [f"at[{axis}] = start[{axis}] + {inner}"])


def _inside(dtype: str, axis: int, size: int) -> str:
    """Text of the condition that a place is at most a pixel outside of the image along one direction."""
    return f"at[{axis}] >= T.{dtype}(-1) and at[{axis}] <= T.{dtype}({size})"


def _neighbours(dtype: str, axis: int, size: int, indent: int) -> str:
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
    return _lines(indent, lines)


def _share(dtype: str, axis: int, upper: int) -> str:
    return f"at[{axis}]" if upper else f"(T.{dtype}(1) - at[{axis}])"


def _lines(indent: int, lines: list[str]) -> str:
    return "\n".join(" " * indent + line for line in lines)


SPECS: tuple[OpSpec, ...] = (OpSpec(OPERATION, read={"vision.roi_align": _read}, function=pooling_function),)
