"""Discrete Fourier transforms of known length, as products with constant matrices."""

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
    constant_value,
    dtype_of,
    get,
    known,
    scalar,
    shape_of,
)
from host.importers.onnx.operators.selection import wrap_negative
from host.importers.shared.fourier import from_half, transform


def _stacked(context: Context, real: Any, imaginary: Any) -> Any:
    return context.emit(relax.op.stack(relax.Tuple([real, imaginary]), -1))


def _dft(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    """A transform along one axis; if the model computes it, along all that give the output's shape."""
    rank = len(shape_of(context, inputs[0]))
    wanted = known(context, inputs, 1, "its length")
    length = None if wanted is None else int(wanted.reshape(-1)[0])
    given = get(inputs, 2) if context.opset >= 20 else None
    if given is None:
        axis = attributes.get("axis", 1) if context.opset < 20 else -2
        return _along(context, inputs[0], axis % rank, length, attributes)
    axis = constant_value(given)
    if axis is not None:
        return _along(context, inputs[0], int(axis.reshape(-1)[0]) % rank, length, attributes)
    shape = context.output_shape()
    candidates = [
        axis
        for axis in range(rank - 1)
        if _result_shape(shape_of(context, inputs[0]), axis, length, attributes) == shape
    ]
    if not candidates:
        raise context.fail("no axis gives the declared shape of its output")
    wrapped = wrap_negative(context, context.emit(relax.op.reshape(given, ())), rank)
    result = context.emit(_along(context, inputs[0], candidates[0], length, attributes))
    for axis in candidates[1:]:
        other = context.emit(_along(context, inputs[0], axis, length, attributes))
        here = context.emit(relax.op.equal(wrapped, scalar(axis, dtype_of(wrapped))))
        result = context.emit(relax.op.where(here, other, result))
    return result


def _result_shape(
    shape: tuple[int, ...], axis: int, length: int | None, attributes: Attributes
) -> tuple[int, ...]:
    inverse, onesided = bool(attributes.get("inverse", 0)), bool(attributes.get("onesided", 0))
    if length is None:
        length = 2 * (shape[axis] - 1) if inverse and onesided else shape[axis]
    rows = length // 2 + 1 if onesided and not inverse else length
    parts = 1 if inverse and onesided else 2
    return (*shape[:axis], rows, *shape[axis + 1 : -1], parts)


def _along(context: Context, data: Any, axis: int, length: int | None, attributes: Attributes) -> Any:
    """The transform along a known axis, of the axis' own length if none is given."""
    shape = shape_of(context, data)
    inverse, onesided = bool(attributes.get("inverse", 0)), bool(attributes.get("onesided", 0))
    size = _result_shape(shape, axis, length, {"inverse": inverse, "onesided": inverse and onesided})[axis]
    data = _fitted(context, data, axis, size // 2 + 1 if inverse and onesided else size)
    parts = [_part(context, data, index, axis) for index in range(shape[-1])]
    imaginary = parts[1] if len(parts) == 2 else None
    if inverse and onesided:
        made = from_half(context.builder, parts[0], imaginary, size, 1 / max(size, 1))
        result = context.emit(relax.op.expand_dims(made, -1))
    else:
        rows, factor = size // 2 + 1 if onesided else size, 1 / max(size, 1) if inverse else 1.0
        result = _stacked(context, *transform(context.builder, parts[0], imaginary, rows, inverse, factor))
    rank = len(shape)
    order = list(range(rank - 2))
    order.insert(axis, rank - 2)
    return relax.op.permute_dims(result, [*order, rank - 1])


def _fitted(context: Context, data: Any, axis: int, length: int) -> Any:
    """The tensor with one axis cut to `length`, or filled up to it with zeros."""
    size = shape_of(context, data)[axis]
    if size > length:
        return context.emit(relax.op.strided_slice(data, [axis], [0], [length], [1]))
    if size < length:
        pads = [0] * (2 * len(shape_of(context, data)))
        pads[2 * axis + 1] = length - size
        return context.emit(relax.op.nn.pad(data, pads, "constant", 0.0))
    return data


def _part(context: Context, data: Any, index: int, axis: int) -> Any:
    """The real (0) or imaginary (1) numbers, with the axis to transform moved to the end."""
    last = len(shape_of(context, data)) - 1
    piece = context.emit(relax.op.strided_slice(data, [last], [index], [index + 1], [1]))
    piece = context.emit(relax.op.squeeze(piece, [last]))
    order = [other for other in range(last) if other != axis]
    return context.emit(relax.op.permute_dims(piece, [*order, axis]))


def _stft(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    """Transforms of frames of a real signal; a computed step places them when the model runs.

    A computed length of the frames is that of the window, or one of the two that give the output's shape.
    """
    signal, window = inputs[0], get(inputs, 2)
    shape = shape_of(context, signal)
    if len(shape) == 3 and shape[2] == 2:
        raise context.fail("complex signals have no conversion")
    if get(inputs, 1) is None or (get(inputs, 3) is None and window is None):
        raise context.fail("no step, or no length of its frames")
    onesided = bool(attributes.get("onesided", 1))
    lengths = _frame_lengths(context, inputs, onesided)
    flat = context.emit(relax.op.reshape(signal, shape[:2]))
    results = []
    for length in lengths:
        places = _frame_places(context, inputs[1], shape[1], length)
        pieces = context.emit(relax.op.take(flat, places, 1, mode="clip"))
        if window is not None:
            pieces = context.emit(relax.op.multiply(pieces, window))
        rows = length // 2 + 1 if onesided else length
        results.append(_stacked(context, *transform(context.builder, pieces, None, rows)))
    if len(results) == 1:
        return results[0]
    given = context.emit(relax.op.reshape(inputs[3], ()))
    here = context.emit(relax.op.equal(given, scalar(lengths[1], dtype_of(given))))
    return relax.op.where(here, results[1], results[0])


def _frame_lengths(context: Context, inputs: Inputs, onesided: bool) -> list[int]:
    """The length of the frames, or the two between which the model chooses."""
    window, given = get(inputs, 2), get(inputs, 3)
    length = None if given is None else constant_value(given)
    if length is not None:
        return [int(length.reshape(-1)[0])]
    if window is not None:
        return [shape_of(context, window)[0]]
    _, frames, rows, _ = context.output_shape()
    size, hop = shape_of(context, inputs[0])[1], constant_value(inputs[1])
    both = [2 * (rows - 1), 2 * rows - 1] if onesided else [rows]
    fitting = [
        length
        for length in both
        if 0 < length <= size and (hop is None or (size - length) // int(hop.reshape(-1)[0]) + 1 == frames)
    ]
    if not fitting:
        raise context.fail("no length of frames gives the declared shape of its output")
    return fitting


def _frame_places(context: Context, step: Any, size: int, length: int) -> Any:
    """Where the values of each frame are in the signal, (frames, length)."""
    within = np.arange(length, dtype=np.int64)[None, :]
    hop = constant_value(step)
    if hop is not None:
        frames = (size - length) // int(hop.reshape(-1)[0]) + 1
        return constant(np.arange(frames, dtype=np.int64)[:, None] * int(hop.reshape(-1)[0]) + within)
    numbers = np.arange(context.output_shape()[1], dtype=np.int64)[:, None]
    distance = context.emit(relax.op.reshape(relax.op.astype(step, "int64"), ()))
    starts = context.emit(relax.op.multiply(constant(numbers), distance))
    return context.emit(relax.op.add(starts, constant(within)))


CONVERTERS: dict[str, Converter] = {"DFT": _dft, "STFT": _stft}
