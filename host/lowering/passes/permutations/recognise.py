"""Finds reorderings of one axis, which models write as views: a channel shuffle becomes one "permute".

A view that splits an axis, a transpose of its parts and a view behind it (ShuffleNet), or tensors stacked
behind the axis that they are then joined with. Elements of a further dimension of the last view, as which
ShuffleNetV2 has its halves, are slices of the axis. Only graphs with convolutions are looked at: their
weights take in what is found.
"""

from __future__ import annotations

from math import prod

import numpy as np

from host.lowering.builder import Builder
from host.lowering.graph import Graph, Node, Shape, Value, reshape_groups
from host.lowering.rebuild import rebuild

# Elements of an axis whose order is followed one by one.
LONGEST = 1 << 14
_CONVOLUTIONS = frozenset({"conv", "integer_conv", "depthwise_conv"})


def recognise_permutations(graph: Graph) -> Graph:
    """An equal graph in which reorderings of one axis are "permute" nodes."""
    if not any(node.op in _CONVOLUTIONS for node in graph.nodes):
        return graph

    def rule(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
        finder = {"reshape": _permuted, "take": _chosen, "slice": _cut}.get(node.op)
        found = finder(builder, node, inputs[0]) if finder is not None else None
        return builder.copy(node, inputs) if found is None else found

    return rebuild(graph, rule)


def permuted(builder: Builder, value: Value, axis: int, order: np.ndarray) -> Value:
    """`value` with its elements along an axis in another order: element i is that at order[i]."""
    attrs = {"axis": axis, "order": tuple(int(i) for i in order)}
    return builder.one("permute", [value], value.shape, value.dtype, **attrs)


def _permuted(builder: Builder, node: Node, value: Value) -> Value | None:
    made = value.producer
    if made is None:
        return None
    if made.op == "concat":
        return _of_stacked(builder, made, node.output.shape)
    if made.op != "transpose" or made.inputs[0].producer is None:
        return None
    view = made.inputs[0].producer
    if view.op != "reshape":
        return None
    source = view.inputs[0]
    found = reordered_axis(source.shape, view.output.shape, made.attrs["axes"])
    if found is None:
        return None
    return builder.reshape(permuted(builder, source, *found), node.output.shape)


def reordered_axis(shape: Shape, split: Shape, axes: Shape) -> tuple[int, np.ndarray] | None:
    """The axis of a tensor that a view and a transpose reorder, and its order; None if there is no such axis.

    Args:
        shape: of the tensor.
        split: of the view.
        axes: of the transpose of the view.
    """
    moved = [axis for axis in axes if split[axis] != 1]
    kept = sorted(moved)
    wrong = [place for place, axis in enumerate(kept) if moved[place] != axis]
    if not wrong:
        return None
    changed = set(kept[wrong[0] : wrong[-1] + 1])
    for old, new in reshape_groups(shape, split) or ():
        if changed <= set(new):
            own = [axis for axis in old if shape[axis] != 1]
            if len(own) != 1 or shape[own[0]] > LONGEST:
                return None
            parts = [axis for axis in new if split[axis] != 1]
            order = [parts.index(axis) for axis in moved if axis in parts]
            places = np.arange(shape[own[0]]).reshape([split[axis] for axis in parts])
            return own[0], places.transpose(order).reshape(-1)
    return None


def _chosen(builder: Builder, node: Node, value: Value) -> Value | None:
    """One element of the first dimension of a view: a part of the axis that was reordered."""
    number = node.inputs[1].scalar()
    if number is None or node.attrs["axis"] != 0 or not 0 <= number < value.shape[0]:
        return None
    return _part(builder, value, int(number), 1, node.output.shape)


def _cut(builder: Builder, node: Node, value: Value) -> Value | None:
    """The same of several elements."""
    shape = node.output.shape
    if shape[1:] != value.shape[1:] or any(stride != 1 for stride in node.attrs["strides"]):
        return None
    return _part(builder, value, node.attrs["begin"][0], shape[0], shape)


def _part(builder: Builder, value: Value, first: int, count: int, shape: Shape) -> Value | None:
    """Elements of the first dimension of a view of what "permute" makes, as a view of `shape`."""
    view = value.producer
    made = view.inputs[0] if view is not None and view.op == "reshape" else None
    if made is None or made.producer is None or made.producer.op != "permute":
        return None
    axis, parts = made.producer.attrs["axis"], value.shape[0]
    if prod(made.shape[:axis]) != 1 or parts == 1 or made.shape[axis] % parts:
        return None
    size = made.shape[axis] // parts
    begin = [0] * axis + [first * size] + [0] * (len(made.shape) - axis - 1)
    kept = (*made.shape[:axis], count * size, *made.shape[axis + 1 :])
    return builder.reshape(builder.slice(made, begin, kept, [1] * len(kept)), shape)


def _of_stacked(builder: Builder, stack: Node, shape: Shape) -> Value | None:
    """Tensors stacked behind an axis that the view joins with the stack."""
    axis, count = stack.attrs["axis"], len(stack.inputs)
    apart = stack.inputs[0].shape
    if axis == 0 or any(part.shape[axis] != 1 for part in stack.inputs):
        return None
    whole = (*apart[: axis - 1], apart[axis - 1] * count, *apart[axis + 1 :])
    size = apart[axis - 1]
    if shape != whole or size == 1 or size * count > LONGEST or prod(shape) == 0:
        return None
    parts = [builder.reshape(part, (*apart[:axis], *apart[axis + 1 :])) for part in stack.inputs]
    joined = builder.one("concat", parts, whole, stack.output.dtype, axis=axis - 1)
    order = np.arange(size * count).reshape(count, size).T.reshape(-1)
    return permuted(builder, joined, axis - 1, order)
