"""Folds scales and shifts by constants into the weights before them (BatchNorm among others).

conv(x, W) * s          = conv(x, W * s)
(conv(x, W) + b) * s    = conv(x, W * s) + b * s
(y + a) + b             = y + (a + b)
"""

from __future__ import annotations

import numpy as np

from host.lowering.builder import Builder
from host.lowering.graph import Graph, Node, Value, constant
from host.lowering.rebuild import rebuild


def fold_affine(graph: Graph) -> Graph:
    """An equal graph with scales and shifts of convolutions and matrix products folded."""
    readers = graph.consumers()
    returned = set(graph.output_values())
    # Names the old values that exactly one node reads: only those may change meaning.
    private = {value for value, nodes in readers.items() if len(nodes) == 1 and value not in returned}
    single: set[Value] = set()

    def rule(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
        fold = _FOLDS.get(node.op)
        result = fold(builder, inputs, single) if fold else None
        outputs = builder.copy(node, inputs) if result is None else (result,)
        single.update(new for old, new in zip(node.outputs, outputs, strict=True) if old in private)
        return outputs

    return rebuild(graph, rule)


def _per_channel(inputs: tuple[Value, ...]) -> tuple[Value, np.ndarray] | None:
    """The non-constant operand, and the constant one if it has one number for each last index."""
    for value, other in (inputs, inputs[::-1]):
        data = other.data
        if data is None or value.is_constant or not value.is_float or not value.shape:
            continue
        if len(other.shape) > len(value.shape) or data.size not in (1, value.shape[-1]):
            continue
        if data.size == 1 or other.shape[-1] == data.size:
            return value, np.broadcast_to(data.reshape(-1), (value.shape[-1],))
    return None


def _multiply(builder: Builder, inputs: tuple[Value, ...], single: set[Value]) -> Value | None:
    operands = _per_channel(inputs)
    if operands is None or operands[0] not in single:
        return None
    value, scale = operands
    return _scaled(builder, value, scale, single)


def _scaled(builder: Builder, value: Value, scale: np.ndarray, single: set[Value]) -> Value | None:
    """`value` * `scale` with the scale taken up by the weights that make `value`."""
    node = value.producer
    if node is None or value not in single:
        return None
    if node.op in ("conv", "conv_transpose", "dense"):
        weight = _scaled_weight(node, scale)
        if weight is None:
            return None
        result = builder.one(node.op, [node.inputs[0], weight], value.shape, value.dtype, **node.attrs)
    elif node.op == "add":
        operands = _per_channel(node.inputs)
        inner = None if operands is None else _scaled(builder, operands[0], scale, single)
        if operands is None or inner is None:
            return None
        result = builder.binary("add", inner, constant(operands[1] * scale))
    else:
        return None
    single.add(result)
    return result


def _scaled_weight(node: Node, scale: np.ndarray) -> Value | None:
    data = node.inputs[1].data
    if data is None:
        return None
    if node.op == "conv_transpose" and node.attrs["groups"] > 1:
        groups = node.attrs["groups"]
        grouped = data.reshape(*data.shape[:-2], groups, -1, data.shape[-1])
        return constant((grouped * scale.reshape(groups, 1, -1)).reshape(data.shape))
    return constant(data * scale)


def _add(builder: Builder, inputs: tuple[Value, ...], single: set[Value]) -> Value | None:
    operands = _per_channel(inputs)
    if operands is None or operands[0] not in single:
        return None
    node = operands[0].producer
    if node is None or node.op != "add":
        return None
    inner = _per_channel(node.inputs)
    if inner is None:
        return None
    return builder.binary("add", inner[0], constant(inner[1] + operands[1]))


_FOLDS = {"multiply": _multiply, "add": _add}
