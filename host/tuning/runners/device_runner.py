"""Builds programs on the host and measures them on boards, which may be lost and come back."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from host.errors import BuildError, ScheduleError, one_line
from host.execution import Engine, LocalEngine
from host.model import Candidate, DeviceProfile
from host.tuning.runners.building import ProgramBuilder
from host.tuning.runners.connection import BoardConnection
from host.tuning.runners.pool import WorkerPool
from host.tuning.runners.reconnect import ReconnectPolicy
from host.tuning.runners.runner import Outcome, Program
from host.tuning.runners.speeds import BoardSpeeds
from host.tuning.tasks import TuningTask

if TYPE_CHECKING:
    from host.build import KernelObject
    from host.tuning.runners.in_model import KernelsInModel

# So many programs compare the speeds of boards: kernels are bound by different things.
_REFERENCES = 3


class DeviceRunner:
    """A `host.tuning.runners.runner.Runner`; a context manager.

    Args:
        connections: to the boards.
        profile: of each of them.
        folder: for libraries.
        note: receives a line about each loss and return; called from several threads.
        references: programs for comparing the boards' speeds, the most important first; none for a single
            board.
        policy: of reconnecting to lost boards.
        in_model: measures kernels inside of the model; None measures each by itself.
        engine: where programs are built; None for this process.
    """

    def __init__(
        self,
        connections: Sequence[BoardConnection],
        profile: DeviceProfile,
        folder: Path,
        note: Callable[[str], None],
        references: Sequence[tuple[TuningTask, Candidate]] = (),
        policy: ReconnectPolicy | None = None,
        in_model: KernelsInModel | None = None,
        engine: Engine | None = None,
    ) -> None:
        self._builder = ProgramBuilder(engine or LocalEngine())
        self._profile = profile
        self._folder = folder
        self._note = note
        self._numbers = itertools.count()
        self._in_model = in_model
        built = self._built(references) if len(connections) > 1 else []
        self._pool = WorkerPool(
            connections,
            note,
            policy or ReconnectPolicy(),
            built,
            BoardSpeeds(),
            in_model,
            ahead=engine is not None and engine.remote,
        )

    def build(self, task: TuningTask, candidate: Candidate) -> Path | KernelObject:
        """See `Runner.build`."""
        if self._in_model is not None:
            return self._builder.kernel(task, candidate, self._in_model.target)
        return self._library(task, candidate)

    def _library(self, task: TuningTask, candidate: Candidate) -> Path:
        """A library with the kernel alone."""
        content = self._builder.library(task, candidate, self._profile)
        library = self._folder / f"candidate-{next(self._numbers)}.so"
        library.write_bytes(content)
        return library

    def run(
        self,
        programs: Sequence[Program],
        may_begin: Callable[[], bool],
        more: Callable[[], Sequence[Program]] | None = None,
    ) -> Iterator[Outcome]:
        """See `Runner.run`; the libraries are removed afterwards."""
        return self._pool.run(programs, may_begin, more)

    def _built(self, references: Sequence[tuple[TuningTask, Candidate]]) -> list[tuple[TuningTask, Path]]:
        built: list[tuple[TuningTask, Path]] = []
        for task, candidate in references:
            if len(built) == _REFERENCES:
                break
            try:
                built.append((task, self._library(task, candidate)))
            except (ScheduleError, BuildError) as error:
                self._note(f"{task.name} is no reference: {one_line(error)}")
        return built

    def __enter__(self) -> DeviceRunner:
        self._pool.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.__exit__(kind, error, trace)
