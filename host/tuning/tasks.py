"""The tasks of a model with their design spaces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from host.model import Candidate

if TYPE_CHECKING:
    from host.schedules.design import DesignSpace


@dataclass(frozen=True, eq=False)
class TuningTask:
    """A task of the model that has decisions.

    Attributes:
        space: its programs.
        estimate_s: estimated seconds of one call of a good one.
        reference: the program that others have to beat, which is measured before any other; None for none.
        energy: whether the energy of its programs is measured too.
    """

    space: DesignSpace
    estimate_s: float
    reference: Candidate | None = None
    energy: bool = False

    @property
    def key(self) -> str:
        """The workload hash of the task."""
        return self.space.task.workload_hash

    @property
    def name(self) -> str:
        """Name of the kernel in the model."""
        return self.space.task.name

    @property
    def weight(self) -> int:
        """Calls in one run of the model."""
        return self.space.task.weight
