"""What is tuned: tasks with their design spaces, and where programs are built and measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from host.model import Candidate, Measurement
from host.space.design import DesignSpace


@dataclass(frozen=True, eq=False)
class TuningTask:
    """A task of the model that has decisions.

    Attributes:
        space: its programs.
        estimate_s: estimated seconds of one call of a good one.
    """

    space: DesignSpace
    estimate_s: float

    @property
    def key(self) -> str:
        """Workload hash."""
        return self.space.task.workload_hash

    @property
    def name(self) -> str:
        """Name of the kernel in the model."""
        return self.space.task.name

    @property
    def weight(self) -> int:
        """Calls in one run of the model."""
        return self.space.task.weight


class Bench(Protocol):
    """Builds programs on the host and measures them on the device."""

    def build(self, task: TuningTask, candidate: Candidate) -> Path:
        """The library of one program; called from several threads.

        Raises:
            ScheduleError: it does not apply to the task.
            BuildError: it does not compile.
        """

    def measure(self, task: TuningTask, library: Path) -> Measurement:
        """Time a built program.

        Raises:
            MeasureError: it cannot be measured.
            SessionLost: it crashed, hung or used too much memory.
            DeviceError: the device is gone and does not come back.
        """
