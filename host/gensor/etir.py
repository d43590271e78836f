"""ETIR: the state of a program under construction.

A state is one value per decision of the task's design space, and the memory level that is being built.
It is immutable and hashable: two orders of the same moves meet in one state.
"""

from __future__ import annotations

from typing import NamedTuple

from host.schedules.api import Level
from host.schedules.design import DesignSpace

_LEVELS = len(Level)


class State(NamedTuple):
    """A tensor program under construction; constructions make tens of thousands of them.

    Attributes:
        values: (decision, value) in the order of the space.
        level: the `Level` being built; `len(Level)` when finished.
    """

    values: tuple[tuple[str, int], ...]
    level: int

    @property
    def finished(self) -> bool:
        """Whether every level has been built."""
        return self.level >= _LEVELS

    @property
    def decisions(self) -> dict[str, int]:
        """The values that are decided so far, by the names of their decisions."""
        return dict(self.values)

    def key(self) -> tuple[tuple[str, int], ...]:
        """The decisions that identify the program, at whatever level the walk is."""
        return self.values

    def with_value(self, name: str, value: int) -> State:
        """The state with one decision changed."""
        return State(tuple((n, value if n == name else v) for n, v in self.values), self.level)

    def advanced(self) -> State:
        """The state at the next level."""
        return State(self.values, self.level + 1)


def initial_state(space: DesignSpace) -> State:
    """The unit program: every tile one element, nothing unrolled, at the register level."""
    return State(tuple((decision.name, decision.choices[0]) for decision in space.decisions), 0)
