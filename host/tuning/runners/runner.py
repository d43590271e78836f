"""What the tuning loop asks of whoever builds and measures programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from host.model import Candidate, Measurement
from host.tuning.tasks import TuningTask


@dataclass(frozen=True, eq=False)
class Program:
    """One program of a batch.

    Attributes:
        task: what it computes.
        candidate: its decisions.
        library: where it was built; None where it was not.
        failure: why not.
        sentence: the task in words of the tensor language; None where it has none.
        base: digest of the language model that proposed it; None for other proposers.
    """

    task: TuningTask
    candidate: Candidate
    library: Path | None
    failure: str = ""
    sentence: tuple[str, ...] | None = None
    base: str | None = None


@dataclass(frozen=True, eq=False)
class Outcome:
    """What became of a program.

    Attributes:
        program: that was to be measured.
        measurement: None where it failed.
        failure: why; "" where it was measured.
        board: name of the board that measured it, or on which it failed; "" where none had it.
        factor: seconds of that board for one of its group's, which the times were divided by.
    """

    program: Program
    measurement: Measurement | None
    failure: str
    board: str = ""
    factor: float = 1.0


class Runner(Protocol):
    """Builds programs on the host and measures them on one board or several of a kind."""

    def build(self, task: TuningTask, candidate: Candidate) -> Path:
        """The library of one program; called from several threads.

        Raises:
            ScheduleError: it does not apply to the task.
            BuildError: it does not compile.
        """

    def run(self, programs: Sequence[Program], may_begin: Callable[[], bool]) -> Iterator[Outcome]:
        """Measure built programs, each once; yields each outcome as soon as it is known.

        Args:
            programs: in the order in which they begin; one that was not built comes back as it is.
            may_begin: asked before each begins; what has not begun when it answers no is left out.

        Raises:
            DeviceError: no board is left, and none comes back.
        """
