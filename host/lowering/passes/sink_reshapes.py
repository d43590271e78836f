"""Moves reshapes down the graph, so that they stand between functions and not inside of fusions.

A reshape costs nothing at run time (the same memory under another shape), but an operation behind
it cannot be fused with one before it. Elementwise operations, normalisations and dense products do
not care how the leading dimensions are grouped, so they work on the tensor as it was before the
reshape. Dense products always get a matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from host.lowering.builder import Builder
from host.lowering.graph import Graph, Node, Shape, Value, map_outputs, reshape_groups
from host.lowering.rebuild import remove_dead
from host.lowering.spec import Kind, ReshapeRule


def sink_reshapes(graph: Graph) -> Graph:
    """An equal graph with reshapes as late as possible."""
    walk = ReshapeWalk(Builder(graph.operators), graph.consumers())
    for node in graph.nodes:
        walk.visit(node)
    outputs = map_outputs(graph.outputs, walk.reshaped)
    return remove_dead(walk.builder.graph(graph.inputs, outputs, graph.functions))


def broadcast_view(shape: Shape, old: Shape, new: Shape) -> Shape | None:
    """The shape under which a tensor that broadcasts to `old` broadcasts to `new`, its elements regrouped.

    None if a group of dimensions is only partly broadcast.
    """
    padded = (1,) * (len(old) - len(shape)) + tuple(shape)
    groups = reshape_groups(old, new)
    if groups is None:
        return None
    result = [1] * len(new)
    for old_axes, new_axes in groups:
        own = [padded[axis] for axis in old_axes]
        if own == [old[axis] for axis in old_axes]:
            for axis in new_axes:
                result[axis] = new[axis]
        elif any(size != 1 for size in own):
            return None
    return tuple(result)


class ReshapeWalk:
    """For every old value, the new tensor that holds its elements in the same order."""

    def __init__(self, builder: Builder, readers: dict[Value, list[Node]]) -> None:
        self.builder = builder
        self.readers = readers
        self.after_anchor: dict[Value, bool] = {}
        self.tensors: dict[Value, Value] = {}
        self.views: dict[tuple[Value, Shape], Value] = {}

    def tensor(self, value: Value) -> Value:
        """The new tensor, in its own shape."""
        return self.tensors.get(value, value)

    def reshaped(self, value: Value) -> Value:
        """The new tensor in the old value's shape, one view for all readers."""
        key = self.tensor(value), value.shape
        if key not in self.views:
            self.views[key] = self.builder.reshape(*key)
        return self.views[key]

    def visit(self, node: Node) -> None:
        """Translate one node."""
        self.builder.layers = node.layers
        rule = node.spec.sink_reshape or _RULES.get(node.spec.kind)
        moved = rule(self, node) if rule else None
        if moved is not None:
            self.tensors[node.output] = moved
            return
        outputs = self.builder.copy(node, [self.reshaped(value) for value in node.inputs])
        self.tensors.update(zip(node.outputs, outputs, strict=True))

    def elementwise(self, node: Node) -> Value | None:
        """The operation in the shape of one of its inputs' tensors."""
        for shape in self.shapes(node):
            inputs = self.regrouped(node, shape)
            if inputs is not None:
                return self.builder.one(node.op, inputs, shape, node.output.dtype, **node.attrs)
        return None

    def shapes(self, node: Node) -> list[Shape]:
        """Shapes worth working in, best first.

        That of a result which an anchor's function can end with, then that of other new results, then
        those of tensors from further back.
        """
        ranked: list[tuple[int, Shape]] = []
        for value in node.inputs:
            if value.shape != node.output.shape or value.is_constant:
                continue
            tensor = self.tensor(value)
            producer = tensor.producer
            if producer is None or not _makes_elements(producer):
                ranked.append((2, tensor.shape))
            elif self.read_once(value) and (producer.spec.sharing.anchor or self.ends_anchor(tensor)):
                ranked.append((0, tensor.shape))
            else:
                ranked.append((1, tensor.shape))
        return [shape for _, shape in sorted(ranked, key=lambda item: item[0])]

    def ends_anchor(self, tensor: Value) -> bool:
        """Whether the function of an anchor ends with a tensor, or it is no elementwise result at all."""
        node = tensor.producer
        if node is None or not node.spec.is_elementwise:
            return True
        if tensor not in self.after_anchor:
            self.after_anchor[tensor] = any(
                part.producer is not None
                and part.shape == tensor.shape
                and _makes_elements(part.producer)
                and self.ends_anchor(part)
                for part in node.inputs
            )
        return self.after_anchor[tensor]

    def read_once(self, value: Value) -> bool:
        """Whether an old value, under whatever shapes, goes to one operation only."""
        while len(self.readers.get(value, ())) == 1:
            if value.producer is None or value.producer.op != "reshape":
                return True
            value = value.producer.inputs[0]
        return False

    def regrouped(self, node: Node, shape: Shape) -> list[Value] | None:
        """The inputs for working in `shape`, or None if one does not broadcast to it."""
        if shape == node.output.shape:
            return [self.reshaped(value) for value in node.inputs]
        inputs = []
        for value in node.inputs:
            target = broadcast_view(value.shape, node.output.shape, shape)
            if target is None:
                return None
            inputs.append(self.builder.reshape(self.tensor(value), target))
        return inputs

    def reduction(self, node: Node) -> Value | None:
        """A reduction that keeps its dimensions, on the tensor as it comes, with the rows grouped as such."""
        value, tensor = node.inputs[0], self.tensor(node.inputs[0])
        if not node.attrs["keepdims"]:
            return None
        axes = _axes_before(tensor.shape, value.shape, node.attrs["axes"])
        if not axes:
            return None
        shape = tuple(1 if axis in axes else size for axis, size in enumerate(tensor.shape))
        return self.builder.one(node.op, [tensor], shape, node.output.dtype, axes=axes, keepdims=True)

    def row_wise(self, node: Node) -> Value | None:
        """Operations along the last dimensions, with the rows grouped as they come."""
        value, dims = node.inputs[0], node.attrs.get("dims", 1)
        tensor = self.tensor(value)
        if not same_tail(tensor.shape, value.shape, dims):
            return None
        if self.ends_anchor(tensor):
            # What comes before belongs to another function anyway: plain rows for this one.
            tensor = self.builder.reshape(tensor, (-1, *value.shape[len(value.shape) - dims :]))
        return self.builder.one(node.op, [tensor], tensor.shape, node.output.dtype, **node.attrs)


def _axes_before(shape: Shape, view: Shape, axes: Sequence[int]) -> tuple[int, ...]:
    """The dimensions of `shape` that are the dimensions `axes` of a view of it; none where nothing is gained.

    The last dimensions, if they are the same, or all of a sample: it does not matter how these are ordered.
    Of dimensions that others follow, any that the view joins or splits among themselves.
    """
    dims = len(axes)
    if _ends_with(axes, len(view)):
        if same_tail(shape, view, dims):
            return tuple(range(len(shape) - dims, len(shape)))
        batch = any(size != 1 for size in view[1 : len(view) - dims])
        whole = not batch and len(shape) > 1 and prod(shape[1:]) == prod(view[len(view) - dims :])
        return tuple(range(1, len(shape))) if whole else ()
    groups = reshape_groups(shape, view)
    found: list[int] = []
    for old, new in groups or ():
        reduced = [axis in axes for axis in new if view[axis] != 1]
        if any(reduced):
            if not all(reduced):
                return ()
            found += [axis for axis in old if shape[axis] != 1]
    return tuple(found)


def _makes_elements(node: Node) -> bool:
    return node.spec.sharing.anchor or node.spec.is_elementwise


def _ends_with(axes: Sequence[int], rank: int) -> bool:
    return tuple(axes) == tuple(range(rank - len(axes), rank))


def same_tail(left: Sequence[int], right: Sequence[int], dims: int) -> bool:
    """Whether two shapes have the same last dimensions."""
    return len(left) >= dims and left[len(left) - dims :] == right[len(right) - dims :]


# Rules of operations that have none of their own.
_RULES: dict[Kind, ReshapeRule] = {
    Kind.ELEMENTWISE: ReshapeWalk.elementwise,
    Kind.REDUCTION: ReshapeWalk.reduction,
    Kind.ROW_WISE: ReshapeWalk.row_wise,
}
