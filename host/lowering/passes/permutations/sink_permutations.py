"""Carries reorderings of channels down the graph until constant weights take them in.

The pass knows, for every value, where each of its channels lies (`Channels`). A "permute", a slice or a
concatenation along the channels changes nothing but this. What treats all channels alike works on a tensor
that has them in any order. A convolution or a dense product is given the channels in the order in which they
lie in memory, and the rows of its weight in the same order: of a shuffle nothing is left, but that parts of
several tensors have to be joined. An order is written out only where an operation or an output needs it.

Runs behind the pass that moves views: what it joins would be apart from its parts otherwise. A graph without
"permute" nodes stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from host.lowering.builder import Builder
from host.lowering.graph import Graph, Node, Shape, Value, constant, map_outputs
from host.lowering.passes.permutations.channels import Channels, cost, inverse_of, reordered, written
from host.lowering.passes.permutations.made_orders import Read, made_orders
from host.lowering.passes.permutations.recognise import LONGEST
from host.lowering.passes.sink_transposes import sink_transposes
from host.lowering.rebuild import inherit_layers, rebuild, remove_dead
from host.lowering.spec import Kind, PermutationRule


def only_channels(graph: Graph) -> Graph:
    """An equal graph whose "permute" nodes are along the last axis, channels; others are transposes again."""

    def rule(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
        if node.op != "permute" or node.attrs["axis"] == len(node.output.shape) - 1:
            return builder.copy(node, inputs)
        return reordered(builder, inputs[0], np.array(node.attrs["order"]), node.attrs["axis"])

    others = (node.attrs["axis"] + 1 < len(node.output.shape) for node in graph.nodes if node.op == "permute")
    return sink_transposes(rebuild(graph, rule)) if any(others) else graph


def _has_permutations(graph: Graph) -> bool:
    return any(node.op == "permute" for node in graph.nodes)


def sink_permutations(graph: Graph) -> Graph:
    """An equal graph without "permute" nodes.

    Args:
        graph: with channels last, products of matrices, and weights as the model has them.
    """
    if not _has_permutations(graph):
        return graph
    made, walk = _walked(graph, {})
    orders = {walk.origins[node]: order for node, order in made_orders(walk.reads).items()}
    if orders:
        other, second = _walked(graph, orders)
        if second.cost() < walk.cost():
            made, walk = other, second
    inherit_layers(graph, made, walk.replaced())
    return made


def _walked(graph: Graph, orders: Mapping[Node, np.ndarray]) -> tuple[Graph, PermutationWalk]:
    walk = PermutationWalk(Builder(graph.operators), orders)
    for node in graph.nodes:
        walk.visit(node)
    outputs = map_outputs(graph.outputs, walk.output)
    return remove_dead(walk.builder.graph(graph.inputs, outputs, graph.functions)), walk


class PermutationWalk:
    """Where the channels of each value of the old graph lie in the new one.

    Args:
        builder: of the new graph.
        orders: of which channel each column is that a product makes, where it is not its own.

    Attributes:
        builder, orders: as given.
        reads: what was written out, see `made_orders`.
        origins: the old node of each new one.
    """

    def __init__(self, builder: Builder, orders: Mapping[Node, np.ndarray]) -> None:
        self.builder = builder
        self.orders = orders
        self.reads: list[Read] = []
        self.origins: dict[Node, Node] = {}
        self._found: dict[Value, Channels] = {}
        self._tensors: dict[Value, Value] = {}
        self._written: dict[tuple[tuple[Value, int], ...], Value] = {}
        self._views: dict[tuple[Value, Shape], Value] = {}

    def channels(self, value: Value) -> Channels:
        """Where the channels of an old value lie."""
        if value not in self._found:
            self._found[value] = Channels.of(self._tensors.get(value, value))
        return self._found[value]

    def is_moved(self, value: Value) -> bool:
        """Whether an old value is no tensor of the new graph as it is."""
        return value in self._found and self._found[value].tensor is None

    def replaced(self) -> dict[Value, Value]:
        """The tensor in place of each old value that has one."""
        tensors = {value: found.tensor for value, found in self._found.items()}
        return {**self._tensors, **{value: one for value, one in tensors.items() if one is not None}}

    def written(self, channels: Channels) -> Value:
        """The tensor with these channels in this order, one for all that read it."""
        found = channels.tensor
        if found is not None:
            return found
        leading = channels.sources[0].shape[:-1]
        rows = self.viewed(channels, (prod(leading),))
        if rows.places not in self._written:
            self._written[rows.places] = rows.tensor or written(self.builder, rows)
        return self.view(self._written[rows.places], leading)

    def cost(self) -> float:
        """What all that was written out takes, see `channels.cost`."""
        return sum(cost(Channels(places)) * places[0][0].shape[0] for places in self._written)

    def plain(self, value: Value) -> Value:
        """The new tensor of an old value in its own order."""
        found = self._found.get(value)
        return self._tensors.get(value, value) if found is None else self.in_own_order(found)

    def in_own_order(self, channels: Channels) -> Value:
        """The tensor with these channels in this order, which nothing but columns of weights can change."""
        if channels.tensor is None:
            self.reads.append({place: i for i, place in enumerate(channels.places)})
        return self.written(channels)

    def output(self, value: Value) -> Value:
        """The new tensor of an output of the graph."""
        self.builder.layers = value.layers
        return self.plain(value)

    def in_any_order(self, value: Value) -> tuple[Value, np.ndarray]:
        """A tensor with the channels of an old value as they lie in memory, and where in it each one is."""
        channels = self.channels(value)
        order = channels.as_they_lie
        self.reads.append(dict.fromkeys(channels.places, 0))
        return self.written(channels.taken(order)), inverse_of(order)

    def in_order(self, value: Value, places: np.ndarray) -> Value:
        """A tensor with the channels of an old value, channel i of them at places[i]."""
        if value.data is not None:
            return constant(np.take(value.data, inverse_of(places), axis=-1))
        return self.in_own_order(self.channels(value).taken(inverse_of(places)))

    def viewed(self, channels: Channels, leading: Shape) -> Channels:
        """The same channels of tensors whose other dimensions are seen as `leading`."""
        return Channels(tuple((self.view(source, leading), channel) for source, channel in channels.places))

    def view(self, source: Value, leading: Shape) -> Value:
        """A tensor with its dimensions but the channels seen as others."""
        key = source, leading
        if key not in self._views:
            self._views[key] = self.builder.reshape(source, (*leading, source.shape[-1]))
        return self._views[key]

    def emit(
        self, node: Node, inputs: Sequence[Value], places: np.ndarray | None = None, **changed: object
    ) -> Channels:
        """`node` on other inputs; channel i of its output is at places[i] of what it makes."""
        attrs = {**node.attrs, **changed}
        made = self.builder.one(node.op, inputs, node.output.shape, node.output.dtype, **attrs)
        whole = Channels.of(made)
        return whole if places is None else whole.taken(places)

    def visit(self, node: Node) -> None:
        """Translate one node."""
        self.builder.layers = node.layers
        rule = node.spec.sink_permutation or _RULES.get(node.spec.kind)
        found = rule(self, node) if rule is not None and _is_bounded(node) else None
        if found is not None:
            self._found[node.output] = found
            self._know(node, found.sources)
            return
        outputs = self.builder.copy(node, [self.plain(value) for value in node.inputs])
        self._tensors.update(zip(node.outputs, outputs, strict=True))
        self._know(node, outputs)

    def _know(self, node: Node, outputs: Sequence[Value]) -> None:
        for output in outputs:
            if output.producer is not None:
                self.origins.setdefault(output.producer, node)


def _is_bounded(node: Node) -> bool:
    """Whether the channels of a node can be followed one by one."""
    tensors = [node.output, *(value for value in node.inputs if not value.is_constant)]
    return len(node.outputs) == 1 and all(value.size > 0 and _width(value) <= LONGEST for value in tensors)


def _width(value: Value) -> int:
    return value.shape[-1] if value.shape else 1


def channel_by_channel(walk: PermutationWalk, node: Node) -> Channels | None:
    """Operations that make each channel of the output of the same channel of their first input."""
    if not walk.is_moved(node.inputs[0]):
        return None
    tensor, places = walk.in_any_order(node.inputs[0])
    return walk.emit(node, [tensor, *map(walk.plain, node.inputs[1:])], places)


def _reduction(walk: PermutationWalk, node: Node) -> Channels | None:
    last = len(node.inputs[0].shape) - 1
    return None if last in node.attrs["axes"] else channel_by_channel(walk, node)


def _elementwise(walk: PermutationWalk, node: Node) -> Channels | None:
    """Tensor by tensor where the channels of all inputs lie alike, else on a tensor of all channels."""
    count = node.output.shape[-1] if node.output.shape else 0
    wide = [value for value in node.inputs if not value.is_constant and value.shape[-1:] == (count,)]
    if not any(walk.is_moved(value) for value in wide):
        return None
    # Of equally large ones that which is in its own order: one has to be written, and the result is in order.
    first = max(wide, key=lambda value: (value.size, not walk.is_moved(value)))
    found = {value: walk.channels(value) for value in wide}
    if all(one.is_whole and one.moved_like(found[first]) for one in found.values()):
        return _by_source(walk, node, found, found[first])
    tensor, places = walk.in_any_order(first)
    inputs = []
    for value in node.inputs:
        if value is first:
            inputs.append(tensor)
        else:
            inputs.append(walk.in_order(value, places) if _has_channels(value, count) else walk.plain(value))
    return walk.emit(node, inputs, places)


def _has_channels(value: Value, count: int) -> bool:
    return value.shape[-1:] == (count,)


def _by_source(walk: PermutationWalk, node: Node, found: dict[Value, Channels], first: Channels) -> Channels:
    """The operation on each of the tensors that the channels come from."""
    count, made = node.output.shape[-1], {}
    for source in first.sources:
        order = first.of_source(source)
        inputs = []
        for value in node.inputs:
            if value in found:
                inputs.append(found[value].places[order[0]][0])
            elif _has_channels(value, count):
                assert value.data is not None
                inputs.append(constant(np.take(value.data, order, axis=-1)))
            else:
                inputs.append(walk.plain(value))
        shape = (*node.output.shape[:-1], len(order))
        made[source] = walk.builder.one(node.op, inputs, shape, node.output.dtype, **node.attrs)
    return Channels(tuple((made[source], channel) for source, channel in first.places))


# Rules of operations that have none of their own.
_RULES: dict[Kind, PermutationRule] = {
    Kind.ELEMENTWISE: _elementwise,
    Kind.REDUCTION: _reduction,
}
