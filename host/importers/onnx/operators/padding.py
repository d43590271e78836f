"""Pad, with widths from the file or from the model's own computation."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, te, tirx

from host.importers.onnx.operators.context import (
    Attributes,
    Context,
    Converter,
    Inputs,
    bounded,
    constant_value,
    dtype_of,
    get,
    scalar,
    shape_of,
)
from host.tensor_ir.opaque import opaque

_RELAX_MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}


def _pad(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    data = inputs[0]
    mode = attributes.get("mode", b"constant").decode()
    shape = shape_of(context, data)
    if context.opset < 11:
        widths: np.ndarray | None = np.array(attributes.get("pads", attributes.get("paddings")))
        value: Any = scalar(attributes.get("value", 0.0), dtype_of(data))
        axes: list[int] | None = list(range(len(shape)))
    else:
        widths = constant_value(inputs[1])
        value = get(inputs, 2)
        axes = _axes(context, inputs, len(shape))
    if value is None:
        value = scalar(0, dtype_of(data))
    if widths is None or axes is None or mode == "wrap" or dtype_of(data) == "bool":
        return _pad_by_values(context, inputs, value, mode)
    before, after = [0] * len(shape), [0] * len(shape)
    for position, axis in enumerate(axes):
        before[axis], after[axis] = int(widths[position]), int(widths[position + len(axes)])
    return _pad_constant(context, data, value, mode, (before, after))


def _axes(context: Context, inputs: Inputs, rank: int) -> list[int] | None:
    """Axes that the widths are for; None if the model computes them."""
    given = get(inputs, 3)
    if given is None:
        return list(range(rank))
    values = constant_value(given)
    return None if values is None else [int(axis) % rank for axis in values]


def _pad_constant(
    context: Context, data: Any, value: Any, mode: str, widths: tuple[list[int], list[int]]
) -> Any:
    before, after = widths
    shape = shape_of(context, data)
    cut = [axis for axis in range(len(shape)) if before[axis] < 0 or after[axis] < 0]
    if cut:
        starts = [max(-before[axis], 0) for axis in cut]
        ends = [shape[axis] - max(-after[axis], 0) for axis in cut]
        data = context.emit(relax.op.strided_slice(data, cut, starts, ends, [1] * len(cut)))
        before, after = ([max(width, 0) for width in side] for side in (before, after))
    if not any(before) and not any(after):
        return data
    fill = constant_value(value)
    if mode == "constant" and (fill is None or not np.isfinite(fill).all()):
        return _pad_with(context, data, value, before, after)
    pairs = [width for pair in zip(before, after, strict=True) for width in pair]
    number = 0.0 if mode != "constant" or fill is None else float(fill.reshape(-1)[0])
    return relax.op.nn.pad(data, pairs, _RELAX_MODES[mode], number)


def _pad_with(context: Context, data: Any, value: Any, before: list[int], after: list[int]) -> Any:
    """Padding by a value that is computed or infinite."""
    shape = shape_of(context, data)
    out = [low + size + high for low, size, high in zip(before, shape, after, strict=True)]

    def compute(source: te.Tensor, fill: te.Tensor) -> te.Tensor:
        def element(*at: Any) -> Any:
            moved = [index - low for index, low in zip(at, before, strict=True)]
            inside = [tirx.all(i >= 0, i < size) for i, size in zip(moved, shape, strict=True)]
            return tirx.if_then_else(tirx.all(*inside), source(*moved), fill(*[0] * len(fill.shape)))

        return te.compute(out, element, name="pad")

    return context.compute(compute, data, value)


def _pad_by_values(context: Context, inputs: Inputs, value: Any, mode: str) -> Any:
    """Widths or axes that the model computes; the output has the declared shape."""
    shape, out = shape_of(context, inputs[0]), context.output_shape()
    given = get(inputs, 3)
    count = shape_of(context, inputs[1])[0] // 2
    axes = [inputs[3]] if given is not None else []

    def compute(data: te.Tensor, widths: te.Tensor, fill: te.Tensor, *rest: te.Tensor) -> te.Tensor:
        def before(dimension: int) -> Any:
            if not rest:
                return bounded(widths[dimension])
            width: Any = tirx.IntImm("int64", 0)
            for k in range(count):
                axis = tirx.Cast("int64", rest[0][k])
                here = tirx.any(axis == dimension, axis == dimension - len(shape))
                width = tirx.if_then_else(here, bounded(widths[k]), width)
            return width

        def element(*at: Any) -> Any:
            moved = [tirx.Cast("int64", i) - before(d) for d, i in enumerate(at)]
            source = data(*[_wrapped(i, size, mode) for i, size in zip(moved, shape, strict=True)])
            if mode != "constant":
                return source
            inside = tirx.all(*[tirx.all(i >= 0, i < size) for i, size in zip(moved, shape, strict=True)])
            return tirx.Select(opaque(inside), source, fill(*[0] * len(fill.shape)))

        return te.compute(out, element, name="pad")

    return context.compute(compute, inputs[0], inputs[1], value, *axes)


def _wrapped(index: Any, size: int, mode: str) -> Any:
    """An index outside of an axis mapped to one inside."""
    last = tirx.IntImm("int64", size - 1)
    if mode == "reflect" and size > 1:
        period = tirx.IntImm("int64", 2 * (size - 1))
        folded = tirx.floormod(index, period)
        return tirx.Select(folded <= last, folded, period - folded)
    if mode == "wrap":
        return tirx.floormod(index, tirx.IntImm("int64", size))
    return tirx.max(tirx.min(index, last), tirx.IntImm("int64", 0))


CONVERTERS: dict[str, Converter] = {"Pad": _pad}
