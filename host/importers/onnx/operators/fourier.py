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
    dtype_of,
    get,
    known,
    shape_of,
)

# A matrix of this many rows is 4 MB in float32; a fast transform would be wanted beyond it.
MAX_LENGTH = 1024


def _matrices(length: int, rows: int, inverse: bool, dtype: str) -> tuple[Any, Any]:
    """Cosines and sines, (length, rows)."""
    angles = 2 * np.pi * np.outer(np.arange(length), np.arange(rows)) / length
    factor = 1 / length if inverse else 1.0
    sign = 1.0 if inverse else -1.0
    return constant((np.cos(angles) * factor).astype(dtype)), constant(
        (sign * np.sin(angles) * factor).astype(dtype)
    )


def _transform(
    context: Context, real: Any, imaginary: Any | None, rows: int, inverse: bool
) -> tuple[Any, Any]:
    """Real and imaginary part of the transform along the last axis."""
    length = shape_of(context, real)[-1]
    if length > MAX_LENGTH:
        raise context.fail(f"a transform of {length} values is longer than {MAX_LENGTH}")
    cosine, sine = _matrices(length, rows, inverse, dtype_of(real))
    first = context.emit(relax.op.matmul(real, cosine))
    second = context.emit(relax.op.matmul(real, sine))
    if imaginary is None:
        return first, second
    first = context.emit(relax.op.subtract(first, relax.op.matmul(imaginary, sine)))
    return first, context.emit(relax.op.add(second, relax.op.matmul(imaginary, cosine)))


def _stacked(context: Context, real: Any, imaginary: Any) -> Any:
    return context.emit(relax.op.stack(relax.Tuple([real, imaginary]), -1))


def _dft(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    data = inputs[0]
    rank = len(shape_of(context, data))
    given = known(context, inputs, 2, "its axis") if context.opset >= 20 else None
    default = 1 if context.opset < 20 else -2
    axis = (int(given.reshape(-1)[0]) if given is not None else attributes.get("axis", default)) % rank
    wanted = known(context, inputs, 1, "its length")
    inverse, onesided = bool(attributes.get("inverse", 0)), bool(attributes.get("onesided", 0))
    if inverse and onesided:
        raise context.fail("the inverse of a one-sided transform has no conversion")
    length = shape_of(context, data)[axis] if wanted is None else int(wanted.reshape(-1)[0])
    data = _fitted(context, data, axis, length)
    parts = [_part(context, data, index, axis) for index in range(shape_of(context, data)[-1])]
    rows = length // 2 + 1 if onesided else length
    real, imaginary = _transform(context, parts[0], parts[1] if len(parts) == 2 else None, rows, inverse)
    result = _stacked(context, real, imaginary)
    order = list(range(rank - 2))
    order.insert(axis, rank - 2)
    return relax.op.permute_dims(result, [*order, rank - 1])


def _fitted(context: Context, data: Any, axis: int, length: int) -> Any:
    """An axis cut or filled with zeros."""
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
    signal, window = inputs[0], get(inputs, 2)
    step = known(context, inputs, 1, "its step")
    wanted = known(context, inputs, 3, "the length of its frames")
    shape = shape_of(context, signal)
    if len(shape) == 3 and shape[2] == 2:
        raise context.fail("complex signals have no conversion")
    if step is None or (wanted is None and window is None):
        raise context.fail("no step, or no length of its frames")
    length = int(wanted.reshape(-1)[0]) if wanted is not None else shape_of(context, window)[0]
    hop = int(step.reshape(-1)[0])
    frames = (shape[1] - length) // hop + 1
    places = np.arange(frames)[:, None] * hop + np.arange(length)[None, :]
    flat = context.emit(relax.op.reshape(signal, shape[:2]))
    pieces = context.emit(relax.op.take(flat, constant(places.astype(np.int64)), 1, mode="clip"))
    if window is not None:
        pieces = context.emit(relax.op.multiply(pieces, window))
    rows = length // 2 + 1 if attributes.get("onesided", 1) else length
    return _stacked(context, *_transform(context, pieces, None, rows, False))


CONVERTERS: dict[str, Converter] = {"DFT": _dft, "STFT": _stft}
