"""Edges of the construction graph: each is one decision moved by one step, or the advance to the next level.

Growing and shrinking are inverses: whatever edge leads from s to t, another leads from t to s.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from host.gensor.etir import State
from host.schedules.design import DesignSpace


@dataclass(frozen=True)
class Action:
    """One edge.

    Attributes:
        kind: "grow", "shrink" or "advance".
        decision: the decision moved, "" for an advance.
        target: the state it leads to.
    """

    kind: str
    decision: str
    target: State


def actions(
    space: DesignSpace, state: State, inverse: bool = True, interleave: bool = True
) -> Iterator[Action]:
    """Legal edges out of a state, the advance included.

    Args:
        space: the design space.
        state: where the walk stands.
        inverse: whether steps back are edges too (the graph) or not (the tree).
        interleave: whether several tiles may be interleaved in one body.
    """
    if state.finished:
        return
    values = state.decisions
    for decision in space.decisions:
        if decision.kind.level != state.level:
            continue
        for value in space.steps(values, decision):
            grows = decision.choices.index(value) > decision.choices.index(values[decision.name])
            if (not grows and not inverse) or (not interleave and decision.kind.interleaves and value > 1):
                continue
            kind = "grow" if grows else "shrink"
            yield Action(kind, decision.name, state.with_value(decision.name, value))
    yield Action("advance", "", state.advanced())


def skip_empty_levels(space: DesignSpace, state: State) -> State:
    """The state at the first level from here on that has a decision with a choice."""
    while not state.finished:
        if any(d.kind.level == state.level and len(d.choices) > 1 for d in space.decisions):
            return state
        state = state.advanced()
    return state
