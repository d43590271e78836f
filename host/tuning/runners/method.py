"""How the programs of a job are measured on a board."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from host.model import Measurement
from host.tuning.runners.connection import BoardConnection
from host.tuning.runners.runner import Outcome, Program


class MeasuringMethod(Protocol):
    """Divides the programs of a batch into jobs, and measures a job; called from several threads."""

    def jobs(self, programs: Sequence[Program], boards: int) -> list[tuple[Program, ...]]:
        """The programs of each job, in the order in which the jobs begin.

        Args:
            programs: of a batch; one that was not built is a job of its own.
            boards: number of boards that measure at the same time.
        """

    def prepared(self, programs: Sequence[Program]) -> Sequence[Path]:
        """The libraries of a job, made before the board is free; `measure` removes them.

        Raises:
            BuildError: a program of the job is at fault.
        """

    def follow(self, connection: BoardConnection, programs: Sequence[Program]) -> None:
        """Name the programs of the job after the next one, for a connection that may send them before."""

    def measure(
        self,
        connection: BoardConnection,
        programs: Sequence[Program],
        factor: float,
        prepared: Sequence[Path] | None = None,
    ) -> list[Outcome]:
        """Measure the programs of a job.

        Args:
            connection: to the board.
            programs: of the job.
            factor: seconds of the board over seconds of its group.
            prepared: for these programs; None where nothing is.

        Returns:
            Outcomes of at least one program; the remaining programs have to be measured again.

        Raises:
            ScheduleError, BuildError, MeasureError, SessionLost: a program of the job is at fault.
            EngineError: no program can be measured in this way.
            DeviceError: the board went away.
        """


class KernelsAlone:
    """Every program is a job, and its kernel is measured by itself; a `MeasuringMethod`."""

    def jobs(self, programs: Sequence[Program], boards: int) -> list[tuple[Program, ...]]:
        """See `MeasuringMethod.jobs`."""
        return [(program,) for program in programs]

    def prepared(self, programs: Sequence[Program]) -> Sequence[Path]:
        """See `MeasuringMethod.prepared`: their libraries are built."""
        return ()

    def follow(self, connection: BoardConnection, programs: Sequence[Program]) -> None:
        """See `MeasuringMethod.follow`."""
        [program] = programs
        if isinstance(program.built, Path) and not program.task.energy:
            connection.follow(program.task, program.built)

    def measure(
        self,
        connection: BoardConnection,
        programs: Sequence[Program],
        factor: float,
        prepared: Sequence[Path] | None = None,
    ) -> list[Outcome]:
        """See `MeasuringMethod.measure`."""
        [program] = programs
        assert isinstance(program.built, Path)
        if program.task.energy:
            measurement = connection.measure_energy(program.task, program.built, program.candidate)
        else:
            measurement = connection.measure(program.task, program.built)
        return [Outcome(program, divided_by(measurement, factor), "", connection.name, factor)]


def divided_by(measurement: Measurement, factor: float) -> Measurement:
    """A measurement with its times divided by a factor."""
    if factor == 1.0:
        return measurement
    return replace(measurement, times_s=tuple(time_s / factor for time_s in measurement.times_s))
