"""Readers of operators that only move elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from host.lowering.builder import Builder
from host.lowering.graph import Value, constant, normalise_axis
from host.lowering.reader.call import OperatorCall, Reader


def _reshape(builder: Builder, call: OperatorCall) -> Value:
    return builder.reshape(call.value(0), call.shape)


def _permute(builder: Builder, call: OperatorCall) -> Value:
    value = call.value(0)
    rank = len(value.shape)
    axes = call.attrs.axes
    order = list(reversed(range(rank))) if axes is None else [normalise_axis(int(a), rank) for a in axes]
    return builder.transpose(value, order)


def _concat(builder: Builder, call: OperatorCall) -> Value:
    parts: list[Value] = list(call.arguments[0])
    axis = normalise_axis(int(call.attrs.axis or 0), len(call.shape))
    parts = [part for part in parts if part.shape[axis] != 0] or [parts[0]]
    if len(parts) == 1:
        return parts[0]
    return builder.one("concat", parts, call.shape, call.dtype, axis=axis)


def _stack(builder: Builder, call: OperatorCall) -> Value:
    axis = normalise_axis(int(call.attrs.axis or 0), len(call.shape))
    parts = []
    for part in call.arguments[0]:
        parts.append(builder.reshape(part, (*part.shape[:axis], 1, *part.shape[axis:])))
    if len(parts) == 1:
        return parts[0]
    return builder.one("concat", parts, call.shape, call.dtype, axis=axis)


def _split(builder: Builder, call: OperatorCall) -> tuple[Value, ...]:
    value = call.value(0)
    axis = normalise_axis(int(call.attrs.axis), len(value.shape))
    parts, start = [], 0
    for shape, _ in call.outputs:
        begin = [0] * len(shape)
        begin[axis] = start
        parts.append(builder.slice(value, begin, shape, [1] * len(shape)))
        start += shape[axis]
    return tuple(parts)


def _integers(argument: Any) -> list[int] | None:
    fields = argument.fields if hasattr(argument, "fields") else argument
    if not all(hasattr(field, "value") for field in fields):
        return None
    return [int(field.value) for field in fields]


def _strided_slice(builder: Builder, call: OperatorCall) -> Value | None:
    value = call.value(0)
    rank = len(value.shape)
    axes, begins = _integers(call.arguments[1]), _integers(call.arguments[2])
    steps = _integers(call.arguments[4]) if len(call.arguments) > 4 else [1] * len(axes or [])
    if axes is None or begins is None or steps is None:
        return None
    begin, strides = [0] * rank, [1] * rank
    for axis, first, step in zip(axes, begins, steps, strict=True):
        axis = normalise_axis(axis, rank)
        size = value.shape[axis]
        first = first + size if first < 0 else first
        begin[axis] = min(max(first, 0), size - 1 if step < 0 else size)
        strides[axis] = step
    return builder.slice(value, begin, call.shape, strides)


def _flip(builder: Builder, call: OperatorCall) -> Value:
    value = call.value(0)
    rank = len(value.shape)
    axis = normalise_axis(int(call.attrs.axis), rank)
    begin, strides = [0] * rank, [1] * rank
    begin[axis], strides[axis] = max(value.shape[axis] - 1, 0), -1
    return builder.one("slice", [value], value.shape, value.dtype, begin=tuple(begin), strides=tuple(strides))


def _pad(builder: Builder, call: OperatorCall) -> Value | None:
    if call.attrs.pad_mode != "constant":
        return None
    widths = [int(w) for w in call.attrs.pad_width]
    if any(width < 0 for width in widths):
        return None
    before, after = tuple(widths[0::2]), tuple(widths[1::2])
    return builder.pad(call.value(0), before, after, float(call.attrs.pad_value))


def _take(builder: Builder, call: OperatorCall) -> Value | None:
    data, indices = call.arguments[0], call.arguments[1]
    if not isinstance(indices, Value):
        return None
    axis = call.attrs.axis
    if axis is None:
        data, axis = builder.reshape(data, (-1,)), 0
    return builder.one(
        "take",
        [data, indices],
        call.shape,
        call.dtype,
        axis=normalise_axis(int(axis), len(data.shape)),
        mode=str(call.attrs.mode),
    )


def _shape_to_tensor(builder: Builder, call: OperatorCall) -> Value | None:
    return constant(np.asarray([int(d) for d in call.arguments[0].values], dtype="int64"))


READERS: dict[str, Reader] = {
    "reshape": _reshape,
    "flatten": _reshape,
    "squeeze": _reshape,
    "expand_dims": _reshape,
    "nn.batch_flatten": _reshape,
    "permute_dims": _permute,
    "concat": _concat,
    "stack": _stack,
    "split": _split,
    "strided_slice": _strided_slice,
    "flip": _flip,
    "nn.pad": _pad,
    "take": _take,
    "shape_to_tensor": _shape_to_tensor,
}
