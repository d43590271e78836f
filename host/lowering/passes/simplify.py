"""Simpler forms of single operations that hold in any layout; each is in the operation's specification."""

from __future__ import annotations

from host.lowering.builder import Builder
from host.lowering.graph import Graph, Node, Value, broadcast_shape
from host.lowering.rebuild import rebuild


def simplify(graph: Graph) -> Graph:
    """An equal graph with fewer operations."""
    return rebuild(graph, _simplify)


def _simplify(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
    rule = node.spec.simplify
    if node.spec.is_elementwise:
        inputs = _not_spread(node, tuple(_trimmed(builder, value) for value in inputs))
    result = rule(builder, node, inputs) if rule else None
    return builder.copy(node, inputs) if result is None else result


def _not_spread(node: Node, inputs: tuple[Value, ...]) -> tuple[Value, ...]:
    """Inputs without the broadcasts that the operation does by itself, as of an Expand before a division.

    A view between the two would make the broadcast tensor a result of its own.
    """
    found = list(inputs)
    for place, value in enumerate(inputs):
        while value.producer is not None and value.producer.op == "broadcast":
            value = value.producer.inputs[0]
            others = (other.shape for at, other in enumerate(found) if at != place)
            if broadcast_shape(value.shape, *others) != node.output.shape:
                break
            found[place] = value
    return tuple(found)


def _trimmed(builder: Builder, value: Value) -> Value:
    """Constants broadcast without leading dimensions of size 1, which makes more functions equal."""
    if not value.is_constant or not value.shape or value.shape[0] != 1:
        return value
    leading = next((axis for axis, size in enumerate(value.shape) if size != 1), len(value.shape))
    return builder.reshape(value, value.shape[leading:])
