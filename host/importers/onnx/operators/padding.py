"""Pad, with widths from the file or from the model's own computation."""

from __future__ import annotations

from collections.abc import Sequence
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
    if widths is None or axes is None:
        return _pad_by_values(context, inputs, value, mode)
    before, after = [0] * len(shape), [0] * len(shape)
    for position, axis in enumerate(axes):
        before[axis], after[axis] = int(widths[position]), int(widths[position + len(axes)])
    if mode == "wrap" or dtype_of(data) == "bool":
        return _pad_by_values(context, inputs, value, mode, (before, after))
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


def _pad_by_values(
    context: Context,
    inputs: Inputs,
    value: Any,
    mode: str,
    known: tuple[list[int], list[int]] | None = None,
) -> Any:
    """Widths or axes that the model computes, or the `known` widths; the output has the declared shape."""
    shape = shape_of(context, inputs[0])
    if known is None:
        out, axes = context.output_shape(), [] if get(inputs, 3) is None else [inputs[3]]
        given = [inputs[1], value, *axes]
    else:
        out = tuple(sum(sizes) for sizes in zip(known[0], shape, known[1], strict=True))
        given = [value]

    def compute(data: te.Tensor, *rest: te.Tensor) -> te.Tensor:
        fill = rest[0 if known is not None else 1]

        def width(dimension: int, side: int) -> Any:
            if known is not None:
                return tirx.IntImm("int64", known[side][dimension])
            return _given_width(rest[0], rest[2:], dimension, side, len(shape))

        def element(*at: Any) -> Any:
            moved = [tirx.Cast("int64", i) - width(d, 0) for d, i in enumerate(at)]
            if mode == "constant":
                places = [_within(i, size) for i, size in zip(moved, shape, strict=True)]
                inside = [tirx.all(i >= 0, i < size) for i, size in zip(moved, shape, strict=True)]
                return tirx.Select(opaque(tirx.all(*inside)), data(*places), fill(*[0] * len(fill.shape)))
            sides = ((width(d, 0), width(d, 1)) for d in range(len(shape)))
            parts = zip(moved, shape, sides, strict=True)
            return data(*[_wrapped(i, size, *both, mode) for i, size, both in parts])

        return te.compute(out, element, name="pad")

    return context.compute(compute, inputs[0], *given)


def _given_width(widths: te.Tensor, axes: Sequence[te.Tensor], dimension: int, side: int, rank: int) -> Any:
    """The width before (side 0) or behind (1) a dimension, from the model's own tensors."""
    count = int(widths.shape[0]) // 2
    if not axes:
        return bounded(widths[dimension + side * count])
    width: Any = tirx.IntImm("int64", 0)
    for k in range(count):
        axis = tirx.Cast("int64", axes[0][k])
        here = tirx.any(axis == dimension, axis == dimension - rank)
        width = tirx.if_then_else(here, bounded(widths[k + side * count]), width)
    return width


def _within(index: Any, size: int) -> Any:
    """The nearest index of an axis."""
    last, zero = tirx.IntImm("int64", size - 1), tirx.IntImm("int64", 0)
    return tirx.max(tirx.min(index, last), zero)


def _wrapped(index: Any, size: int, before: Any, after: Any, mode: str) -> Any:
    """An index outside of an axis mapped to one inside of what negative widths leave of it."""
    zero, one = tirx.IntImm("int64", 0), tirx.IntImm("int64", 1)
    first = tirx.max(-before, zero)
    left = tirx.max(size - first - tirx.max(-after, zero), one)
    place = index - first
    if mode == "reflect":
        folded = tirx.floormod(place, tirx.max(2 * (left - 1), one))
        place = tirx.Select(folded < left, folded, 2 * (left - 1) - folded)
    elif mode == "wrap":
        place = tirx.floormod(place, left)
    else:
        place = tirx.max(tirx.min(place, left - 1), zero)
    return _within(first + place, size)


CONVERTERS: dict[str, Converter] = {"Pad": _pad}
