"""Moves transposes down the graph until they meet their inverse.

Readers put channels last around every convolution and pooling, so a network arrives full of pairs
of transposes with elementwise operations, concatenations, reductions and reshapes between them. The
pass carries, for every value, a tensor and the order of its dimensions that has not been applied
yet; most operations can work on the unordered tensor. An order is written out as a transpose only
where an operation or an output needs it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from host.lowering.builder import Builder
from host.lowering.graph import Graph, Node, Value, map_outputs, reshape_groups
from host.lowering.operators import ELEMENTWISE, REDUCTIONS, ROW_WISE
from host.lowering.rebuild import remove_dead

Order = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Ordered:
    """`tensor` transposed by `order`: dimension i is the tensor's dimension order[i]."""

    tensor: Value
    order: Order

    @property
    def is_plain(self) -> bool:
        """Whether no transpose is pending."""
        return self.order == tuple(range(len(self.order)))


def sink_transposes(graph: Graph) -> Graph:
    """An equal graph with transposes only where nothing else serves."""
    walk = _Walk(Builder())
    for node in graph.nodes:
        walk.visit(node)
    outputs = map_outputs(graph.outputs, walk.written_out)
    return remove_dead(Graph(graph.inputs, walk.builder.nodes, outputs, graph.functions))


def inverse(order: Sequence[int]) -> Order:
    """The order that undoes `order`."""
    result = [0] * len(order)
    for position, axis in enumerate(order):
        result[axis] = position
    return tuple(result)


class _Walk:
    """What each value of the old graph has become."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.pending: dict[Value, Ordered] = {}
        self.written: dict[Value, Value] = {}

    def get(self, value: Value) -> Ordered:
        """The new tensor and pending order of an old value."""
        return self.pending.get(value) or Ordered(value, tuple(range(len(value.shape))))

    def written_out(self, value: Value) -> Value:
        """The new tensor in the old value's own order."""
        if value not in self.written:
            ordered = self.get(value)
            self.written[value] = self.builder.transpose(ordered.tensor, ordered.order)
        return self.written[value]

    def in_order(self, value: Value, order: Order) -> Value:
        """The new tensor of `value`, laid out such that `order` is still to be applied to it."""
        ordered = self.get(value)
        if ordered.order == order:
            return ordered.tensor
        return self.builder.transpose(self.written_out(value), inverse(order))

    def visit(self, node: Node) -> None:
        """Translate one node."""
        handler = _HANDLERS.get(node.op)
        ordered = handler(self, node) if handler else None
        if ordered is None:
            inputs = [self.written_out(value) for value in node.inputs]
            for old, new in zip(node.outputs, self.builder.copy(node, inputs), strict=True):
                self.pending[old] = Ordered(new, tuple(range(len(new.shape))))
            return
        self.pending[node.output] = ordered

    def emit(self, node: Node, inputs: Sequence[Value], order: Order, **changed: object) -> Ordered:
        """`node` on reordered inputs; its output has the pending order `order`."""
        shape = node.output.shape
        unordered = tuple(shape[axis] for axis in inverse(order))
        attrs = {**node.attrs, **changed}
        return Ordered(self.builder.one(node.op, inputs, unordered, node.output.dtype, **attrs), order)


_Handler = Callable[[_Walk, Node], Ordered | None]


def _transpose(walk: _Walk, node: Node) -> Ordered:
    ordered = walk.get(node.inputs[0])
    return Ordered(ordered.tensor, tuple(ordered.order[axis] for axis in node.attrs["axes"]))


def _elementwise(walk: _Walk, node: Node) -> Ordered | None:
    rank = len(node.output.shape)
    order = _common_order(walk, node)
    if order is None:
        return None
    inputs = []
    for value in node.inputs:
        if len(value.shape) == rank:
            inputs.append(walk.in_order(value, order))
            continue
        if value.size == 1:
            inputs.append(walk.written_out(value))
            continue
        full = walk.builder.reshape(walk.written_out(value), (1,) * (rank - len(value.shape)) + value.shape)
        inputs.append(walk.builder.transpose(full, inverse(order)))
    return walk.emit(node, inputs, order)


def _common_order(walk: _Walk, node: Node) -> Order | None:
    """The pending order that most of the large inputs share, None if it is none."""
    votes: dict[Order, int] = {}
    for value in node.inputs:
        if len(value.shape) == len(node.output.shape) and not value.is_constant:
            order = walk.get(value).order
            votes[order] = votes.get(order, 0) + value.size
    if not votes:
        return None
    # On a tie the pending order wins: it came from a convolution and most likely goes to one.
    best = max(votes, key=lambda order: (votes[order], order != tuple(range(len(order)))))
    return None if best == tuple(range(len(best))) else best


def _reduction(walk: _Walk, node: Node) -> Ordered | None:
    ordered = walk.get(node.inputs[0])
    if ordered.is_plain:
        return None
    axes = {ordered.order[axis] for axis in node.attrs["axes"]}
    if node.attrs["keepdims"]:
        order = ordered.order
    else:
        left = [axis for axis in range(len(ordered.order)) if axis not in axes]
        order = tuple(left.index(axis) for axis in ordered.order if axis not in axes)
    return walk.emit(node, [ordered.tensor], order, axes=tuple(sorted(axes)))


def _concat(walk: _Walk, node: Node) -> Ordered | None:
    order = _common_order(walk, node)
    if order is None:
        return None
    inputs = [walk.in_order(value, order) for value in node.inputs]
    return walk.emit(node, inputs, order, axis=order[node.attrs["axis"]])


def _per_dimension(*names: str) -> _Handler:
    def handle(walk: _Walk, node: Node) -> Ordered | None:
        ordered = walk.get(node.inputs[0])
        if ordered.is_plain:
            return None
        back = inverse(ordered.order)
        changed = {name: tuple(node.attrs[name][axis] for axis in back) for name in names}
        return walk.emit(node, [ordered.tensor], ordered.order, **changed)

    return handle


def _keeps_last() -> _Handler:
    """Operations along the last dimensions work on any order that leaves those where they are."""

    def handle(walk: _Walk, node: Node) -> Ordered | None:
        ordered = walk.get(node.inputs[0])
        rank = len(ordered.order)
        kept = node.attrs.get("dims", 1)
        if ordered.is_plain or ordered.order[rank - kept :] != tuple(range(rank - kept, rank)):
            return None
        others = [walk.written_out(value) for value in node.inputs[1:]]
        return walk.emit(node, [ordered.tensor, *others], ordered.order)

    return handle


def _reshape(walk: _Walk, node: Node) -> Ordered | None:
    """A reshape that joins or splits dimensions which stay neighbours in the unordered tensor."""
    ordered = walk.get(node.inputs[0])
    if ordered.is_plain:
        return None
    groups = reshape_groups(node.inputs[0].shape, node.output.shape)
    if groups is None:
        return None
    placed = []
    for old_axes, new_axes in groups:
        sources = [ordered.order[axis] for axis in old_axes if node.inputs[0].shape[axis] != 1]
        if any(not _only_units(ordered.tensor, a, b) for a, b in itertools.pairwise(sources)):
            return None
        placed.append((sources[0] if sources else -1, new_axes))
    placed.sort(key=lambda item: item[0])
    sequence = [axis for _, axes in placed for axis in axes]
    shape = [node.output.shape[axis] for axis in sequence]
    return Ordered(walk.builder.reshape(ordered.tensor, shape), inverse(sequence))


def _only_units(tensor: Value, first: int, second: int) -> bool:
    return second > first and all(tensor.shape[axis] == 1 for axis in range(first + 1, second))


_HANDLERS: dict[str, _Handler] = {
    "transpose": _transpose,
    "reshape": _reshape,
    "concat": _concat,
    "pad": _per_dimension("before", "after"),
    "slice": _per_dimension("begin", "strides"),
    "dense": _keeps_last(),
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    **dict.fromkeys(REDUCTIONS, _reduction),
    **{op: _keeps_last() for op in ROW_WISE},
}
