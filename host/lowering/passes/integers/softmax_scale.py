"""A quantised softmax has the scale that ONNX Runtime gives it.

QLinearSoftmax takes the whole part of 1 / scale: with a scale a little above 1/256 every result is 255/256 of
the exact one. Whoever has checked a quantised model with that runtime has checked it so, and a model that
enlarges a step of quantisation gives other outputs with the exact scale.
"""

from __future__ import annotations

from math import floor

import numpy as np

from host.lowering.builder import Builder
from host.lowering.graph import Graph, Node, Value, constant, read_once
from host.lowering.rebuild import rebuild

_BYTES = ("int8", "uint8")


def softmax_scale(graph: Graph) -> Graph:
    """The graph with that scale where a softmax of bytes is quantised to bytes."""
    private = read_once(graph)

    def rule(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
        value = node.inputs[0] if node.op == "quantize" else None
        if (
            value is None
            or node.output.dtype not in _BYTES
            or not private(value)
            or not _is_softmax(value, node)
        ):
            return builder.copy(node, inputs)
        scale = inputs[1].scalar()
        if scale is None or not 0.0 < scale <= 1.0:
            return builder.copy(node, inputs)
        whole = np.float32(floor(np.float32(1.0) / np.float32(scale)))
        step = constant(float(np.float32(1.0) / whole), "float32")
        return builder.one("quantize", [inputs[0], step, inputs[2]], node.output.shape, node.output.dtype)

    return rebuild(graph, rule)


def _is_softmax(value: Value, quantised: Node) -> bool:
    """Whether a value is the softmax of dequantised bytes of one scale and of the result's type."""
    node = _without_transposes(value)
    if node is None or node.op != "softmax":
        return False
    source = _without_transposes(node.inputs[0])
    if source is None or source.op != "dequantize":
        return False
    data, scale, _ = source.inputs
    return data.dtype == quantised.output.dtype and scale.scalar() is not None


def _without_transposes(value: Value) -> Node | None:
    node = value.producer
    while node is not None and node.op == "transpose":
        node = node.inputs[0].producer
    return node
