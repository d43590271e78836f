"""Choices whose condition compares two numbers: one side is left.

A transform that is written as one choice among its results (Winograd's) has all of them in each copy of its
unrolled loops. TVM's passes would walk through them all: its simplifier drops choices among scalars late, and
choices among vectors, whose condition is spread to all lanes, never.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from host.tensor_ir.structural import mapped


def without_settled_choices(body: tirx.Stmt) -> tirx.Stmt:
    """The same with `Select(2 == 2, a, b)` as `a` and `Select(2 == 3, a, b)` as `b`; of vectors likewise."""
    return mapped(body, (tirx.Select, _taken))


def _taken(choice: tirx.Select) -> Any:
    condition = choice.condition
    if isinstance(condition, tirx.Broadcast):
        condition = condition.value
    if not isinstance(condition, tirx.EQ):
        return choice
    a, b = condition.a, condition.b
    if not isinstance(a, tirx.IntImm) or not isinstance(b, tirx.IntImm):
        return choice
    return choice.true_value if int(a.value) == int(b.value) else choice.false_value
