"""Edges of the construction graph: each is one decision moved by one step, or the advance to the next level.

Growing and shrinking are inverses: whatever edge leads from s to t, another leads from t to s.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from host.gensor.etir import State
from host.schedules.design import DesignSpace, Fits


class Action(NamedTuple):
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
    space: DesignSpace,
    state: State,
    inverse: bool = True,
    interleave: bool = True,
    fits: Fits | None = None,
) -> Iterator[Action]:
    """Legal edges out of a state, the advance included.

    Args:
        space: the design space.
        state: where the walk stands.
        inverse: whether steps back are edges too (the graph) or not (the tree).
        interleave: whether several tiles may be interleaved in one body.
        fits: see `DesignSpace.steps`.
    """
    if state.finished:
        return
    values = state.decisions
    for decision in space.decisions:
        kind, name = decision.kind, decision.name
        if kind.level != state.level:
            continue
        for value in space.steps(values, decision, fits):
            grows = value > values[name]
            if (not grows and not inverse) or (not interleave and kind.interleaves and value > 1):
                continue
            # A dictionary keeps the places of its names.
            moved = State(tuple({**values, name: value}.items()), state.level)
            yield Action("grow" if grows else "shrink", name, moved)
    yield Action("advance", "", state.advanced())


def skip_empty_levels(space: DesignSpace, state: State) -> State:
    """The state at the first level from here on that has a decision with a choice."""
    while not state.finished and state.level not in space.open_levels:
        state = state.advanced()
    return state
