"""Moves what follows a concatenation to its parts.

There it is computed on values that are still in registers, and scales and shifts go into the weights before
them; behind the concatenation it would be a pass of its own over memory:

relu(concat(conv(x), conv(y)))  = concat(relu(conv(x)), relu(conv(y)))
"""

from __future__ import annotations

import numpy as np

from host.lowering.builder import Builder
from host.lowering.graph import Graph, Node, Value, constant
from host.lowering.rebuild import rebuild


def apply_before_joining(graph: Graph) -> Graph:
    """An equal graph whose concatenations have elementwise operations with constants before them.

    Only those of a concatenation that nothing else reads, so that no work is repeated, and where the function
    that makes a part can end with them.
    """
    readers = graph.consumers()
    returned = set(graph.output_values())
    private = {value for value, nodes in readers.items() if len(nodes) == 1 and value not in returned}
    joined: set[Value] = set()

    def rule(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
        made = _moved(builder, node, inputs, joined) if node.spec.is_elementwise else None
        outputs = builder.copy(node, inputs) if made is None else (made,)
        for old, new in zip(node.outputs, outputs, strict=True):
            if old in private and _joins_results(new):
                joined.add(new)
        return outputs

    return rebuild(graph, rule)


def _joins_results(value: Value) -> bool:
    """Whether a value is a concatenation with a part that a function makes which can go on with it."""
    node = value.producer
    return node is not None and node.op == "concat" and any(_is_result(part) for part in node.inputs)


def _is_result(value: Value) -> bool:
    """Whether a value is made by an operation with own loops, or by elementwise ones behind it."""
    while value.producer is not None and value.producer.spec.is_elementwise:
        inputs = [one for one in value.producer.inputs if one.shape == value.shape]
        if not inputs:
            return False
        value = inputs[0]
    return value.producer is not None and value.producer.spec.sharing.anchor


def _moved(builder: Builder, node: Node, inputs: tuple[Value, ...], joined: set[Value]) -> Value | None:
    """The concatenation of what a node makes of each part; None where the node reads anything else."""
    tensors = [value for value in inputs if not value.is_constant]
    if len(tensors) != 1 or tensors[0] not in joined or tensors[0].shape != node.output.shape:
        return None
    [whole] = tensors
    assert whole.producer is not None
    axis, start, parts = whole.producer.attrs["axis"], 0, []
    for part in whole.producer.inputs:
        end = start + part.shape[axis]
        own = [part if value is whole else _cut(value, whole, axis, start, end) for value in inputs]
        parts.append(builder.one(node.op, own, part.shape, node.output.dtype, **node.attrs))
        start = end
    return builder.one("concat", parts, node.output.shape, node.output.dtype, axis=axis)


def _cut(value: Value, whole: Value, axis: int, start: int, end: int) -> Value:
    """What a constant that broadcasts to `whole` has for the elements from `start` to `end` of an axis."""
    own = axis - len(whole.shape) + len(value.shape)
    if own < 0 or value.shape[own] == 1:
        return value
    assert value.data is not None
    return constant(np.take(value.data, np.arange(start, end), axis=own))
