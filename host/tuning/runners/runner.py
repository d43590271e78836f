"""The interface for building and measuring programs, as the tuning loop uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from host.model import Candidate, Measurement
from host.tuning.tasks import TuningTask

if TYPE_CHECKING:
    from host.build import KernelObject


@dataclass(frozen=True, eq=False)
class Program:
    """One program of a batch.

    Attributes:
        task: that the program computes.
        candidate: its decisions.
        built: a library with the kernel, or its object where it is measured inside of the model; None if it
            was not built.
        failure: why it was not built.
        sentence: the task as a sentence of the tensor language; None if it has none.
        base: digest of the language model that proposed it; None for other proposers.
    """

    task: TuningTask
    candidate: Candidate
    built: Path | KernelObject | None
    failure: str = ""
    sentence: tuple[str, ...] | None = None
    base: str | None = None


@dataclass(frozen=True, eq=False)
class Outcome:
    """The outcome of measuring a program.

    Attributes:
        program: to be measured.
        measurement: None if the program failed.
        failure: the reason; "" if it was measured.
        board: name of the board that measured it, or on which it failed; "" if no board had it.
        factor: by which the times were divided: seconds of that board over seconds of its group, or, inside
            of the model, those of the reference program now over those of its record.
    """

    program: Program
    measurement: Measurement | None
    failure: str
    board: str = ""
    factor: float = 1.0


class Runner(Protocol):
    """Builds programs on the host and measures them on one board or several of a kind."""

    def build(self, task: TuningTask, candidate: Candidate) -> Path | KernelObject:
        """One program, compiled; called from several threads.

        Raises:
            ScheduleError: it does not apply to the task.
            BuildError: it does not compile.
        """

    def run(
        self,
        programs: Sequence[Program],
        may_begin: Callable[[], bool],
        more: Callable[[], Sequence[Program]] | None = None,
    ) -> Iterator[Outcome]:
        """Measure built programs, each once; yields each outcome as soon as it is known.

        Args:
            programs: in the order in which they begin; one that was not built comes back as it is.
            may_begin: called before each program begins; once it returns False, the remaining programs are
                left out.
            more: called whenever fewer jobs wait than there are boards, so that none of them is idle while
                others end a batch: further programs to measure, () while there are none.

        Raises:
            DeviceError: all boards are lost, and none comes back.
        """
