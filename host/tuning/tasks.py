"""What is tuned: tasks with their design spaces, and where programs are built and measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from host.model import Candidate, Measurement
from host.schedules.design import DesignSpace


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


@dataclass(frozen=True, eq=False)
class Item:
    """One program of a batch.

    Attributes:
        task: what it computes.
        candidate: the program.
        library: where it was built; None where it was not.
        failure: why not.
        origin: what its record says of the proposal: the sentence, the language model.
    """

    task: TuningTask
    candidate: Candidate
    library: Path | None
    failure: str
    origin: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Outcome:
    """What became of a program.

    Attributes:
        item: the program.
        measurement: None where it failed.
        failure: why; "" where it was measured.
        unit: name of the board that measured it, or on which it failed; "" where none had it.
        factor: seconds of that board for one of its fleet's, which the times were divided by.
    """

    item: Item
    measurement: Measurement | None
    failure: str
    unit: str = ""
    factor: float = 1.0


class Bench(Protocol):
    """Builds programs on the host and measures them on one board or several of a kind."""

    def build(self, task: TuningTask, candidate: Candidate) -> Path:
        """The library of one program; called from several threads.

        Raises:
            ScheduleError: it does not apply to the task.
            BuildError: it does not compile.
        """

    def measured(self, items: Sequence[Item], more: Callable[[], bool]) -> Iterator[Outcome]:
        """Time built programs, each once; yields each as soon as it is done.

        Args:
            items: in the order in which they begin; one that was not built comes back as it is.
            more: asked before each begins; what has not begun when it says no is left out.

        Raises:
            DeviceError: no board is left, and none comes back.
        """
