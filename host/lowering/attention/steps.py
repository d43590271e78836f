"""Elementwise operations inside of an attention: what quantised files compute between its products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from host.lowering.expressions.stage import Expression, Stage
from host.lowering.graph import Node, Value
from host.lowering.spec import OpSpec

# Operands of a step: the element that it takes, and an element of another tensor.
ELEMENT, OTHER = "element", "other"


@dataclass(frozen=True)
class Step:
    """One operation on each element.

    Attributes:
        operation: its name.
        operands: `ELEMENT`, `OTHER`, or a number with its type.
        source: type of the element that it takes.
        dtype: type of what it gives.
        other: type of the elements of another tensor; "" without one.
        attrs: what else it depends on.
        spec: of the operation.
    """

    operation: str
    operands: tuple[str | tuple[float | int, str], ...]
    source: str
    dtype: str
    other: str
    attrs: tuple[tuple[str, Any], ...]
    spec: OpSpec = field(compare=False)

    @classmethod
    def of(cls, node: Node, element: Value, other: Value | None = None) -> Step | None:
        """The step that a node is; None where it is none.

        Args:
            node: of the graph.
            element: its input that has the shape of its output.
            other: another input, which broadcasts to that shape.
        """
        if not node.spec.is_elementwise or node.spec.write is None or len(node.outputs) != 1:
            return None
        if element.shape != node.output.shape:
            return None
        operands: list[str | tuple[float | int, str]] = []
        for value in node.inputs:
            if value is element or value is other:
                operands.append(ELEMENT if value is element else OTHER)
            elif value.data is not None and value.size == 1:
                operands.append((value.data.reshape(-1)[0].item(), value.dtype))
            else:
                return None
        return cls(
            node.op,
            tuple(operands),
            element.dtype,
            node.output.dtype,
            "" if other is None else other.dtype,
            tuple(sorted(node.attrs.items())),
            node.spec,
        )

    def expression(self, element: Expression, other: Expression | None = None) -> Expression:
        """What it gives for an element."""
        stage = Stage()
        taken = {ELEMENT: Value((), self.source), OTHER: Value((), self.other)}
        stage.define(taken[ELEMENT], lambda _: element)
        stage.define(taken[OTHER], lambda _: other)
        inputs = [taken[one] if isinstance(one, str) else _number(*one) for one in self.operands]
        node = Node(self.spec, tuple(inputs), dict(self.attrs))
        node.outputs = (Value((), self.dtype, producer=node),)
        assert self.spec.write is not None
        self.spec.write(stage, node)
        return stage.element(node.output, ())


def applied(steps: Sequence[Step], element: Expression, other: Expression | None = None) -> Expression:
    """What steps give for an element, one after the other.

    Args:
        steps: in running order.
        element: that the first takes.
        other: the element of another tensor, which one of them takes.
    """
    for step in steps:
        element = step.expression(element, other)
    return element


def _number(value: float | int, dtype: str) -> Value:
    return Value((), dtype, np.asarray(value, dtype=dtype))
