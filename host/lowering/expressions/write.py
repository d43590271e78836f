"""Writes a node onto the stage of its function."""

from __future__ import annotations

from host.lowering.expressions.stage import Stage
from host.lowering.expressions.stock import stock
from host.lowering.graph import Node


def write(stage: Stage, node: Node) -> None:
    """Define the outputs of `node` on the stage.

    Raises:
        NotOneExpressionError: the operator cannot be written as one tensor expression.
    """
    (node.spec.write or stock)(stage, node)
