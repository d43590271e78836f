"""Moves transposes down the graph until they meet their inverse.

Readers put channels last around every convolution and pooling, so a network arrives full of pairs
of transposes with elementwise operations, concatenations, reductions and reshapes between them. The
pass carries, for every value, a tensor and the order of its dimensions that has not been applied
yet; most operations can work on the unordered tensor. An order is written out as a transpose only
where an operation or an output needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from host.lowering.builder import Builder
from host.lowering.graph import Graph, Node, Value, map_outputs
from host.lowering.rebuild import remove_dead
from host.lowering.spec import Kind, TransposeRule

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
    walk = TransposeWalk(Builder(graph.operators))
    for node in graph.nodes:
        walk.visit(node)
    outputs = map_outputs(graph.outputs, walk.output)
    return remove_dead(walk.builder.graph(graph.inputs, outputs, graph.functions))


def inverse(order: Sequence[int]) -> Order:
    """The order that undoes `order`."""
    result = [0] * len(order)
    for position, axis in enumerate(order):
        result[axis] = position
    return tuple(result)


class TransposeWalk:
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

    def output(self, value: Value) -> Value:
        """The new tensor of an output of the graph."""
        self.builder.layers = value.layers
        return self.written_out(value)

    def in_order(self, value: Value, order: Order) -> Value:
        """The new tensor of `value`, laid out such that `order` is still to be applied to it."""
        ordered = self.get(value)
        if ordered.order == order:
            return ordered.tensor
        return self.builder.transpose(self.written_out(value), inverse(order))

    def visit(self, node: Node) -> None:
        """Translate one node."""
        self.builder.layers = node.layers
        rule = node.spec.sink_transpose or _RULES.get(node.spec.kind)
        ordered = rule(self, node) if rule else None
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


def _elementwise(walk: TransposeWalk, node: Node) -> Ordered | None:
    rank = len(node.output.shape)
    order = common_order(walk, node)
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


def common_order(walk: TransposeWalk, node: Node) -> Order | None:
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


def _reduction(walk: TransposeWalk, node: Node) -> Ordered | None:
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


def per_dimension(*names: str) -> TransposeRule:
    """The rule of operations with attributes that have an entry for each dimension."""

    def rule(walk: TransposeWalk, node: Node) -> Ordered | None:
        ordered = walk.get(node.inputs[0])
        if ordered.is_plain:
            return None
        back = inverse(ordered.order)
        changed = {name: tuple(node.attrs[name][axis] for axis in back) for name in names}
        return walk.emit(node, [ordered.tensor], ordered.order, **changed)

    return rule


def keep_last_dimensions(walk: TransposeWalk, node: Node) -> Ordered | None:
    """Operations along the last dimensions work on any order that leaves those where they are."""
    ordered = walk.get(node.inputs[0])
    rank = len(ordered.order)
    kept = node.attrs.get("dims", 1)
    if ordered.is_plain or ordered.order[rank - kept :] != tuple(range(rank - kept, rank)):
        return None
    others = [walk.written_out(value) for value in node.inputs[1:]]
    return walk.emit(node, [ordered.tensor, *others], ordered.order)


# Rules of operations that have none of their own.
_RULES: dict[Kind, TransposeRule] = {
    Kind.ELEMENTWISE: _elementwise,
    Kind.REDUCTION: _reduction,
    Kind.ROW_WISE: keep_last_dimensions,
}
