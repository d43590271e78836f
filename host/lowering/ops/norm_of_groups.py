"""Norms of groups of channels where channels are last in memory.

A group norm is written as a layer norm of rows, each of which holds some channels at all positions.
Convolutions have their channels last, where such a row is no run of memory: mean and variance are sums over
the positions first and over the channels of a group then, and the norm itself is arithmetic with a number for
each channel. Nothing is transposed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from host.lowering.builder import Builder
from host.lowering.graph import Node, Value, constant, reshape_groups
from host.lowering.passes.sink_transposes import Ordered, TransposeWalk, keep_last_dimensions


def over_rows_of_channels(builder: Builder, x: Value, dims: int, epsilon: float) -> Value:
    """The layer norm of `x` over its last `dims` dimensions.

    Where `x` is a view whose rows join the channels of a group and the positions, these become dimensions of
    their own: another layout can only order what are different dimensions.
    """
    apart = _with_positions_apart(x) if dims == 1 else None
    if apart is None:
        return builder.unary("layer_norm", x, dims=dims, epsilon=epsilon)
    view = builder.reshape(x, apart)
    norm = builder.unary("layer_norm", view, dims=len(apart) - len(x.shape) + 1, epsilon=epsilon)
    return builder.reshape(norm, x.shape)


def behind_norm(builder: Builder, node: Node) -> Value | None:
    """What follows such a norm element by element, in the norm's own shape and with the view behind it."""
    if not node.spec.is_elementwise or node.output.size == 1:
        return None
    sources = []
    for value in node.inputs:
        view = value.producer
        if value.size == 1:
            sources.append(builder.reshape(value, ()))
        elif view is None or view.op != "reshape" or value.shape != node.output.shape:
            return None
        else:
            sources.append(view.inputs[0])
    shapes = {source.shape for source in sources if source.shape}
    if len(shapes) != 1 or not any(_from_norm(source) for source in sources):
        return None
    inner = builder.one(node.op, sources, shapes.pop(), node.output.dtype, **node.attrs)
    if inner.producer is not None:
        # Without the views between them, several operations may be one that has a name.
        named = (match(builder, inner.producer) for match in builder.operators.recognisers)
        inner = next((one for one in named if one is not None), inner)
    return builder.reshape(inner, node.output.shape)


def _from_norm(value: Value) -> bool:
    """Whether a value is such a norm, or follows from one element by element."""
    node = value.producer
    while node is not None and node.spec.is_elementwise:
        node = next((one.producer for one in node.inputs if one.shape == value.shape), None)
    return node is not None and node.op == "layer_norm" and node.attrs["dims"] > 1


def _with_positions_apart(x: Value) -> tuple[int, ...] | None:
    """The shape of `x` with its last dimension as channels of a group and positions, if it joins them."""
    node = x.producer
    if node is None or node.op != "reshape":
        return None
    source = node.inputs[0].shape
    groups = reshape_groups(source, x.shape)
    if groups is None:
        return None
    old, new = groups[-1]
    joined = [source[axis] for axis in old if source[axis] != 1]
    split = [x.shape[axis] for axis in new if x.shape[axis] != 1]
    if len(joined) < 2 or len(split) != 2 or x.shape[-1] == 1 or joined[0] % split[0]:
        return None
    return (*x.shape[:-1], joined[0] // split[0], *joined[1:])


def sink_transpose_of_norm(walk: TransposeWalk, node: Node) -> Ordered | None:
    """The norm of rows that are not last in memory, in two passes over the tensor as it lies."""
    kept = keep_last_dimensions(walk, node)
    ordered = walk.get(node.inputs[0])
    if kept is not None or ordered.is_plain:
        return kept
    builder, tensor = walk.builder, ordered.tensor
    rank = len(ordered.order)
    axes = {ordered.order[axis] for axis in range(rank - node.attrs["dims"], rank)}
    others = [axis for axis in range(rank) if axis not in axes and tensor.shape[axis] != 1]
    behind = max(others, default=0) + 1
    if all(axis >= behind for axis in axes if tensor.shape[axis] != 1):
        # In another order the rows are still runs of memory.
        return walk.emit(node, [tensor], ordered.order, dims=rank - behind)
    mean = _mean(builder, tensor, axes)
    # A number for each element of what is last in memory: vectors are loaded then, and not made of parts.
    shape = tuple(1 if axis in axes and axis < behind else size for axis, size in enumerate(tensor.shape))
    mean = _broadcast(builder, mean, shape)
    distance = builder.binary("subtract", tensor, mean)
    variance = _mean(builder, builder.binary("multiply", distance, distance), axes)
    epsilon = constant(np.asarray(node.attrs["epsilon"], tensor.dtype))
    scale = builder.unary("rsqrt", builder.binary("add", variance, epsilon))
    scale = _broadcast(builder, scale, shape)
    # Not the distance again, which would be written to memory for its two readers.
    shift = builder.unary("negative", builder.binary("multiply", mean, scale))
    return Ordered(builder.binary("add", builder.binary("multiply", tensor, scale), shift), ordered.order)


def _mean(builder: Builder, tensor: Value, axes: set[int]) -> Value:
    """The mean over `axes`, which stay as 1: over those that other axes follow, then over the others."""
    behind = max(axis for axis in range(len(tensor.shape)) if axis not in axes and tensor.shape[axis] != 1)
    for part in (
        sorted(axis for axis in axes if axis < behind),
        sorted(axis for axis in axes if axis > behind),
    ):
        tensor = _reduced(builder, tensor, part)
    return tensor


def _reduced(builder: Builder, tensor: Value, axes: Sequence[int]) -> Value:
    axes = tuple(axis for axis in axes if tensor.shape[axis] != 1)
    if not axes:
        return tensor
    shape = tuple(1 if axis in axes else size for axis, size in enumerate(tensor.shape))
    return builder.one("mean", [tensor], shape, tensor.dtype, axes=axes, keepdims=True)


def _broadcast(builder: Builder, value: Value, shape: tuple[int, ...]) -> Value:
    return value if value.shape == shape else builder.one("broadcast", [value], shape, value.dtype)
