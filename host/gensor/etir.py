"""ETIR: the state of a program under construction.

A state is one value per decision of the task's design space, and the memory level that is being built.
It is immutable and hashable: two orders of the same moves meet in one state.
"""

from __future__ import annotations

from dataclasses import dataclass

from host.schedules.design import PARALLEL, DesignSpace

# Decisions by the level at which they are taken, innermost first: the register tile, its code and how it
# reads its input, then the blocks that share what is in cache or, on a GPU, in shared memory. A rule's
# decisions that are not named here are taken at the register level.
_CUDA_BLOCK = ("tx", "ty", "tz", "vx", "vy", "stage", "depth", "steps", "halo", "fetch", "threads", "vector")
LEVELS: tuple[tuple[str, ...], ...] = (
    ("vectors", "rows", "rows2", "unroll", "window", "pad", "partials", "strip", "inline", "cols"),
    ("panel", "block", "block2", PARALLEL, *_CUDA_BLOCK),
)
_LEVEL_OF = {name: index for index, names in enumerate(LEVELS) for name in names}
# Decisions that interleave several tiles in one body: their operations do not wait for one another or,
# on a GPU, neighbouring threads touch neighbouring banks; with the value at which there is one tile only.
INTERLEAVE = {"vectors": 1, "rows2": 1, "partials": 1, "vx": 1, "vy": 1}


@dataclass(frozen=True)
class State:
    """A tensor program under construction.

    Attributes:
        values: (decision, value) in the order of the space.
        level: index into `LEVELS` of the level being built; `len(LEVELS)` when finished.
    """

    values: tuple[tuple[str, int], ...]
    level: int

    @property
    def finished(self) -> bool:
        """Whether every level has been built."""
        return self.level >= len(LEVELS)

    @property
    def decisions(self) -> dict[str, int]:
        """The values by name."""
        return dict(self.values)

    def key(self) -> tuple[tuple[str, int], ...]:
        """What the program is, whatever level the walk stands at."""
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


def level_of(name: str) -> int:
    """The level at which a decision is taken."""
    return _LEVEL_OF.get(name, 0)
