"""The largest pixels of the bins of regions of images, as ONNX's MaxRoiPool; attribute `scale`.

Inputs are images (B, H, W, C) and regions (R, 5): the number of the image, and the corners x, y, x, y, which
`scale` and rounding make pixels. Both corners belong to a region. The output is (R, P, Q, C). The P by Q bins
of a region are rounded outwards to whole pixels, so they may share some. A bin without a pixel of the image
is zero, and one with NaN is NaN: what ONNX Runtime gives depends on where it is.

A bin is a step of its own, which reads its pixels with all channels, one after another.
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

OPERATION = "region_maxima"
# Corners farther away than this are moved here: differences of two, and sums with them, are whole numbers of
# 32 bits.
_FARTHEST = 5e8
# Pixels of a bin, usually.
_USUAL_PIXELS = 9


def _read(builder: Builder, call: OperatorCall) -> Value:
    data, layout, scale = call.value(0), str(call.attrs.layout), float(call.attrs.spatial_scale)
    last = channels_last(layout)
    if not math.isfinite(scale):
        raise LoweringError(f"the scale of MaxRoiPool is {scale}; deploy with --backend onnxruntime")
    result = builder.one(
        OPERATION,
        [builder.transpose(data, order(layout, last)), builder.cast(call.value(1), "float32")],
        tuple(call.shape[axis] for axis in order(layout, last)),
        call.dtype,
        scale=scale,
    )
    return builder.transpose(result, order(last, layout))


def maxima_function(node: Node) -> tirx.PrimFunc:
    """The function of a "region_maxima" node; arguments are its inputs and then its output."""
    return function_of_script(_text(node))


def _text(node: Node) -> str:
    """TVMScript of the function: bin by bin, pixel by pixel."""
    images, regions = node.inputs
    _, rows, columns, channels = images.shape
    count, high, wide, _ = node.output.shape
    dtype, place = images.dtype, "vr, vp, vq"
    pixel = "images[image[0], first[0] + i, first[1] + j, c]"
    largest = extreme_text("max", f"result[{place}, c]", pixel, dtype)
    return f"""
@T.prim_func(s_tir=True, private=True)
def function(
    images: {buffer_text(images)}, regions: {buffer_text(regions)}, result: {buffer_text(node.output)},
) -> None:
    for r, p, q in T.grid({count}, {high}, {wide}):
        with T.sblock("bins"):
            vr, vp, vq = T.axis.remap("SSS", [r, p, q])
            {step_text(_USUAL_PIXELS * (0.5 + 20 / channels), "result")}
            T.reads(images[0:{images.shape[0]}, 0:{rows}, 0:{columns}, 0:{channels}], regions[vr, 0:5])
            T.writes(result[{place}, 0:{channels}])
            image = T.sblock_alloc_buffer((1,), "int32", scope="local")
            corner = T.sblock_alloc_buffer((2,), "float32", scope="local")
            # Of both directions: where the region begins, the first pixel of the bin, and how many it has.
            start = T.sblock_alloc_buffer((2,), "int32", scope="local")
            size = T.sblock_alloc_buffer((2,), "float32", scope="local")
            first = T.sblock_alloc_buffer((2,), "int32", scope="local")
            pixels = T.sblock_alloc_buffer((2,), "int32", scope="local")
            image[0] = T.cast(regions[vr, 0], "int32")
{_direction(node, 0, rows, high, "vp")}
{_direction(node, 1, columns, wide, "vq")}
            for c in range({channels}):
                result[{place}, c] = T.if_then_else(
                    pixels[0] > 0 and pixels[1] > 0, T.{dtype}({_least(dtype)}), T.{dtype}(0)
                )
            for i, j in T.grid(pixels[0], pixels[1]):
                for c in range({channels}):
                    result[{place}, c] = {largest}
"""


def _least(dtype: str) -> str:
    return repr(float(tirx.min_value(dtype).value))


def _direction(node: Node, axis: int, pixels: int, bins: int, part: str) -> str:
    """Text that finds the pixels of a bin along one direction; axis 0 is y."""
    lines = []
    for number, column in enumerate((2 - axis, 4 - axis)):
        # Halves are rounded away from zero. The bounds hold for NaN, too.
        scaled = f"regions[vr, {column}] * T.float32({node.attrs['scale']!r})"
        bounded = f"T.min(T.max({scaled}, T.float32({-_FARTHEST!r})), T.float32({_FARTHEST!r}))"
        moved = f"corner[{number}] + T.if_then_else(corner[{number}] < T.float32(0), -0.5, 0.5)"
        lines += [f"corner[{number}] = {bounded}", f"corner[{number}] = T.trunc({moved})"]
    extent = "T.max(T.cast(corner[1], 'int32') - T.cast(corner[0], 'int32') + 1, 1)"
    lines += [
        f"start[{axis}] = T.cast(corner[0], 'int32')",
        f"size[{axis}] = T.cast({extent}, 'float32') / T.float32({bins})",
    ]
    for target, rounded, edge in (("first", "floor", part), ("pixels", "ceil", f"{part} + 1")):
        end = f"T.cast(T.{rounded}(T.cast({edge}, 'float32') * size[{axis}]), 'int32') + start[{axis}]"
        lines.append(f"{target}[{axis}] = T.min(T.max({end}, 0), {pixels})")
    lines.append(f"pixels[{axis}] = T.max(pixels[{axis}] - first[{axis}], 0)")
    return "\n".join(" " * 12 + line for line in lines)


SPECS: tuple[OpSpec, ...] = (OpSpec(OPERATION, read={"vision.roi_pool": _read}, function=maxima_function),)
