"""The interface of rules whose programs of whole tiles serve a range of lengths (`host.dynamic`).

The last tile of a length that is no multiple of the tile is moved back, and overlaps the one before it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self

from host.schedules.workload import Workload
from targets import HardwareModel


@dataclass(frozen=True)
class TileDesign:
    """A tile along the length that a program is to be constructed for.

    Attributes:
        hardware: the processor as the rule is to see it: short lengths want shorter vectors.
        decisions: what is decided by that; the others are open.
        length: at which the program is constructed.
    """

    hardware: HardwareModel
    decisions: Mapping[str, int]
    length: int


@dataclass(frozen=True)
class LengthTile:
    """The tile of a program along the length.

    Attributes:
        extents: of a tile along each axis that grows with the length.
        period: length of whole blocks of tiles: programs at its multiples differ in numbers only.
    """

    extents: tuple[int, ...]
    period: int

    @property
    def shortest_length(self) -> int:
        """The shortest length that has room for a tile."""
        return max(self.extents, default=1)

    @property
    def step(self) -> int:
        """The shortest length that whole tiles cover along every axis."""
        return math.lcm(*self.extents)

    def count(self, length: int) -> int:
        """Tiles that a program takes for a length."""
        return math.prod(-(-length // extent) for extent in self.extents)


class LengthTiling(ABC):
    """How the programs of a rule take one task's length apart into tiles that may overlap."""

    @classmethod
    @abstractmethod
    def between(cls, shorter: Workload, longer: Workload, hardware: HardwareModel) -> Self:
        """The tiling of a task that is known at two lengths.

        Raises:
            ScheduleError: tiles of this task cannot overlap.
        """

    @abstractmethod
    def designs(self, hardware: HardwareModel) -> Iterator[TileDesign]:
        """The tiles to construct programs for, on a processor as it is."""

    @abstractmethod
    def untiled(self) -> Mapping[str, int]:
        """Decisions with tiles of one iteration, whose programs have one structure at every length."""

    @abstractmethod
    def tile(self, values: Mapping[str, int], hardware: HardwareModel) -> LengthTile:
        """The tile of a program with these decisions."""

    @abstractmethod
    def decisions_at(self, values: Mapping[str, int], length: int) -> Mapping[str, int]:
        """Decisions of the program at a multiple of its tile that may be less than its period."""
