"""Convolutions with a kernel of one position become matrix products of all positions at once.

The rows of such a product can be tiled without regard to where an image row ends. Constant weights make a
dense product, weights that the model computes one of two activations.
"""

from __future__ import annotations

from host.lowering.builder import Builder
from host.lowering.graph import Graph, Node, Value
from host.lowering.passes.integers.use_integers import is_quantized_constant
from host.lowering.rebuild import rebuild


def pointwise_as_dense(graph: Graph) -> Graph:
    """An equal graph without convolutions that read one position each."""

    def rule(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
        if not _is_pointwise(node):
            return builder.copy(node, inputs)
        data, weight = inputs
        matrix = builder.reshape(weight, weight.shape[-2:])
        rows = builder.reshape(data, (-1, data.shape[-1]))
        shape = (rows.shape[0], matrix.shape[1])
        known = weight.is_constant or is_quantized_constant(weight)
        result = builder.one("dense" if known else "matmul", [rows, matrix], shape, node.output.dtype)
        return builder.reshape(result, node.output.shape)

    return rebuild(graph, rule)


def _is_pointwise(node: Node) -> bool:
    if node.op != "conv" or node.attrs["groups"] != 1 or any(node.attrs["padding"]):
        return False
    return all(size == 1 for size in (*node.inputs[1].shape[:-2], *node.attrs["strides"]))
