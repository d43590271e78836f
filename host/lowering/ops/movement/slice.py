"""Elements begin + stride * index of every dimension; attributes `begin` and `strides`."""

from __future__ import annotations

from typing import Any

import numpy as np

from host.lowering.builder import Builder
from host.lowering.expressions.stage import Expression, Indices, Stage
from host.lowering.graph import Node, Shape, Value, normalise_axis
from host.lowering.passes.permutations.channels import Channels
from host.lowering.passes.permutations.sink_permutations import PermutationWalk, channel_by_channel
from host.lowering.passes.sink_reshapes import ReshapeWalk, same_tail
from host.lowering.passes.sink_transposes import per_dimension
from host.lowering.reader.call import OperatorCall
from host.lowering.spec import Fusion, OpSpec


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


def _write(stage: Stage, node: Node) -> None:
    """Reads at begin + stride * index."""
    begin, strides = node.attrs["begin"], node.attrs["strides"]

    def element(indices: Indices) -> Expression:
        source = [
            b + s * i if s != 1 else (i + b if b else i)
            for b, s, i in zip(begin, strides, indices, strict=True)
        ]
        return stage.element(node.inputs[0], source)

    stage.define(node.output, element)


def _fold(inputs: Any, attrs: Any, shape: Shape, dtype: str) -> Any:
    data = inputs[0]
    for axis, (first, step, count) in enumerate(zip(attrs["begin"], attrs["strides"], shape, strict=True)):
        data = np.take(data, first + step * np.arange(count), axis=axis)
    return data


def _sink_reshape(walk: ReshapeWalk, node: Node) -> Value | None:
    """A slice of the last dimension only, with the rows grouped as they come; any of the same dimensions."""
    value, tensor = node.inputs[0], walk.tensor(node.inputs[0])
    if _long(tensor.shape) == _long(value.shape):
        return _slice_of_long(walk, node, tensor)
    if node.output.shape[:-1] != value.shape[:-1] or not same_tail(tensor.shape, value.shape, 1):
        return None
    if any(stride < 0 for stride in node.attrs["strides"][:-1]):
        return None
    rank = len(tensor.shape)
    begin = (0,) * (rank - 1) + node.attrs["begin"][-1:]
    strides = (1,) * (rank - 1) + node.attrs["strides"][-1:]
    return walk.builder.slice(tensor, begin, (*tensor.shape[:-1], node.output.shape[-1]), strides)


def _slice_of_long(walk: ReshapeWalk, node: Node, tensor: Value) -> Value | None:
    """The slice of a tensor that has the same dimensions but for those of one element."""
    value = node.inputs[0]
    if any(size == 1 and made != 1 for size, made in zip(value.shape, node.output.shape, strict=True)):
        return None
    every = zip(node.attrs["begin"], node.attrs["strides"], node.output.shape, value.shape, strict=True)
    parts = iter([one[:3] for one in every if one[3] != 1])
    placed = [(0, 1, 1) if size == 1 else next(parts) for size in tensor.shape]
    begin, strides, shape = (list(one) for one in zip(*placed, strict=True))
    return walk.builder.slice(tensor, begin, tuple(shape), strides)


def _long(shape: Shape) -> list[int]:
    """The extents of the dimensions of more than one element."""
    return [size for size in shape if size != 1]


def _sink_permutation(walk: PermutationWalk, node: Node) -> Channels | None:
    """A slice of the channels is one of the places; other dimensions are sliced in any order of channels."""
    value, rank = node.inputs[0], len(node.output.shape)
    if rank == 0:
        return None
    begin, strides = node.attrs["begin"], node.attrs["strides"]
    if node.output.shape[:-1] == value.shape[:-1] and all(stride > 0 for stride in strides[:-1]):
        count = node.output.shape[-1]
        return walk.channels(value).taken([begin[-1] + strides[-1] * i for i in range(count)])
    whole = node.output.shape[-1] == value.shape[-1] and strides[-1] == 1
    return channel_by_channel(walk, node) if whole else None


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        "slice",
        read={"strided_slice": _strided_slice, "split": _split, "flip": _flip},
        write=_write,
        fold=_fold,
        fusion=Fusion(inlined=True, computes=lambda reader, node: True),
        sink_transpose=per_dimension("begin", "strides"),
        sink_reshape=_sink_reshape,
        sink_permutation=_sink_permutation,
    ),
)
