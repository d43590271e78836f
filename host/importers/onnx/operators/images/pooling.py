"""Pooling: automatic padding as numbers, and the places of maxima."""

from __future__ import annotations

import math
from typing import Any

from tvm import relax, te, tirx

from host.importers.onnx.operators.context import (
    Attributes,
    Context,
    Converter,
    Inputs,
    convert_with_tvm,
    shape_of,
)
from host.importers.onnx.operators.images.spatial import with_pads


def _pool(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    """Automatic padding becomes numbers; the rest is TVM's."""
    given = _padded(context, inputs, attributes)
    if context.operator == "MaxPool" and len(context.outputs) > 1 and context.outputs[1]:
        return _with_places(context, inputs, given)
    return convert_with_tvm(context, inputs, given)


def _padded(context: Context, inputs: Inputs, attributes: Attributes) -> dict[str, Any]:
    """The attributes with explicit padding."""
    sizes = shape_of(context, inputs[0])[2:]
    given = with_pads(attributes, sizes, tuple(attributes["kernel_shape"]))
    if attributes.get("auto_pad", b"NOTSET") not in (b"", b"NOTSET"):
        # With automatic padding the size of the output is that of whole windows in either mode.
        given["ceil_mode"] = 0
    return given


def _with_places(context: Context, inputs: Inputs, given: dict[str, Any]) -> Any:
    """Maxima, and the numbers of their places in the whole tensor."""
    data, out = inputs[0], context.output_shape()
    sizes = shape_of(context, data)[2:]
    rank = len(sizes)
    kernel = tuple(given["kernel_shape"])
    strides, dilations = (tuple(given.get(name, (1,) * rank)) for name in ("strides", "dilations"))
    pads = given.get("pads", (0,) * (2 * rank))
    steps = _steps(sizes, given.get("storage_order", 0))

    def place(position: tuple[Any, ...], taps: tuple[Any, ...]) -> list[Any]:
        return [
            at * stride - low + tap * dilation
            for at, stride, low, tap, dilation in zip(position, strides, pads, taps, dilations, strict=False)
        ]

    def compute(source: te.Tensor) -> Any:
        taps = [te.reduce_axis((0, size), name=f"k{axis}") for axis, size in enumerate(kernel)]
        image = math.prod(sizes)
        largest = te.comm_reducer(
            _larger, lambda a, b: (tirx.const(-1, a), tirx.min_value(b)), name="largest"
        )

        def element(n: Any, c: Any, *at: Any) -> Any:
            where = place(at, tuple(taps))
            inside = tirx.all(*[tirx.all(i >= 0, i < size) for i, size in zip(where, sizes, strict=True)])
            held = [tirx.max(tirx.min(i, size - 1), 0) for i, size in zip(where, sizes, strict=True)]
            index = sum(i * step for i, step in zip(held, steps, strict=True))
            number = (n * shape_of(context, data)[1] + c) * image + index
            lowest = tirx.min_value(source.dtype)
            return largest(
                (
                    tirx.Select(inside, tirx.Cast("int64", number), tirx.const(-1, "int64")),
                    # No Select, which may read outside: within its condition the bounds of an index go.
                    tirx.if_then_else(inside, source(n, c, *held), lowest),
                ),
                axis=taps,
            )

        return te.compute(out, element, name="largest")

    both = context.compute(compute, data)
    indices, values = (context.emit(relax.TupleGetItem(both, index)) for index in (0, 1))
    return [values, indices]


def _larger(first: Any, second: Any) -> Any:
    """The larger of two values with its place, the first one in the order of the window if they are equal."""
    later = tirx.any(first[0] < 0, tirx.all(second[0] >= 0, second[1] > first[1]))
    return tirx.Select(later, second[0], first[0]), tirx.Select(later, second[1], first[1])


def _steps(sizes: tuple[int, ...], storage_order: int) -> list[int]:
    """What one step along each axis of an image adds to the number of a place."""
    inner = [sizes[:axis] if storage_order else sizes[axis + 1 :] for axis in range(len(sizes))]
    return [math.prod(part) for part in inner]


CONVERTERS: dict[str, Converter] = dict.fromkeys(("AveragePool", "LpPool", "MaxPool"), _pool)
