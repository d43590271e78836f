"""How each operation of the graph is written as a tensor expression."""

from __future__ import annotations

from collections.abc import Callable

from host.lowering.expressions.stage import Indices, Stage
from host.lowering.expressions.stock import NotOneExpressionError, stock
from host.lowering.graph import Node
from host.lowering.legalize import contraction, dot, movement, pooling, reduction, row_wise, winograd
from host.lowering.legalize.elementwise import expression
from host.lowering.operators import ELEMENTWISE, REDUCTIONS

__all__ = ["NotOneExpressionError", "Stage", "write"]

_WRITERS: dict[str, Callable[[Stage, Node], None]] = {
    "packed_dense": contraction.packed_dense,
    "packed_conv": contraction.packed_conv,
    "dot_dense": dot.dot_dense,
    "dot_conv": dot.dot_conv,
    "winograd_conv": winograd.winograd_conv,
    "grouped_conv": contraction.grouped_conv,
    "depthwise_conv": contraction.depthwise_conv,
    "matmul": contraction.matmul,
    "softmax": row_wise.softmax,
    "log_softmax": row_wise.log_softmax,
    "layer_norm": row_wise.layer_norm,
    "rms_norm": row_wise.rms_norm,
    "pool": pooling.pool,
    "transpose": movement.transpose,
    "reshape": movement.reshape,
    "slice": movement.slice_,
    "pad": movement.pad,
    "concat": movement.concat,
    "take": movement.take,
    "interleave": movement.interleave,
    "dilate": movement.dilate,
    **dict.fromkeys(REDUCTIONS, reduction.reduce),
}


def _elementwise(stage: Stage, node: Node) -> None:
    def element(indices: Indices) -> object:
        args = [stage.broadcast_element(value, node.output.shape, indices) for value in node.inputs]
        return expression(node.op, args, node.attrs, node.output.dtype)

    stage.define(node.output, element)


def write(stage: Stage, node: Node) -> None:
    """Define the outputs of `node` on the stage.

    Raises:
        NotOneExpressionError: the operator cannot be written as one tensor expression.
    """
    if node.op in ELEMENTWISE:
        _elementwise(stage, node)
    elif node.op in _WRITERS:
        _WRITERS[node.op](stage, node)
    else:
        stock(stage, node)
