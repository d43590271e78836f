"""Programs built on the host and timed on boards that may go away and come back."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType

from host.errors import BuildError, ScheduleError
from host.model import Candidate, DeviceProfile
from host.tuning.runners.connection import Unit
from host.tuning.runners.reconnect import Patience
from host.tuning.runners.single import OneBoard, Pool, one_line
from host.tuning.runners.speeds import Speeds
from host.tuning.runners.worker import Fleet
from host.tuning.tasks import Item, Outcome, TuningTask

# So many programs say how fast boards are beside each other: kernels are bound by different things.
_REFERENCES = 3


class DeviceBench:
    """A `host.tuning.tasks.Bench`; a context manager.

    Args:
        units: the boards.
        profile: of each of them.
        folder: for libraries.
        note: told of losses and returns; called from several threads.
        references: programs to tell the boards' speeds by, those that count most first; one board needs
            none.
        patience: with boards that went away.
        speeds: judges several boards by the references.
    """

    def __init__(
        self,
        units: Sequence[Unit],
        profile: DeviceProfile,
        folder: Path,
        note: Callable[[str], None],
        references: Sequence[tuple[TuningTask, Candidate]] = (),
        patience: Patience | None = None,
        speeds: Speeds | None = None,
    ) -> None:
        self._profile = profile
        self._folder = folder
        self._note = note
        self._numbers = itertools.count()
        patience = patience or Patience()
        if len(units) == 1:
            self._pool: Pool = OneBoard(units[0], note, patience)
        else:
            self._pool = Fleet(units, note, patience, self._built(references), speeds or Speeds())

    def build(self, task: TuningTask, candidate: Candidate) -> Path:
        """See `Bench.build`."""
        from host.build import KernelCache, build_cuda_library, build_kernel_library, cuda_major, target_for
        from host.schedules import scheduled_function

        try:
            function = scheduled_function(task.space.apply(candidate))
        except (RuntimeError, TypeError, ValueError) as error:
            raise ScheduleError(f"{task.name}: {error}") from error
        library = self._folder / f"candidate-{next(self._numbers)}.so"
        functions, target = {task.name: function}, target_for(self._profile.board)
        if self._profile.hardware.gpu is not None:
            build_cuda_library(functions, library, target, KernelCache(), cuda_major(self._profile.software))
        else:
            build_kernel_library(functions, library, target, KernelCache())
        return library

    def measured(self, items: Sequence[Item], more: Callable[[], bool]) -> Iterator[Outcome]:
        """See `Bench.measured`; the libraries are removed afterwards."""
        return self._pool.measured(items, more)

    def _built(self, references: Sequence[tuple[TuningTask, Candidate]]) -> list[tuple[TuningTask, Path]]:
        built: list[tuple[TuningTask, Path]] = []
        for task, candidate in references:
            if len(built) == _REFERENCES:
                break
            try:
                built.append((task, self.build(task, candidate)))
            except (ScheduleError, BuildError) as error:
                self._note(f"{task.name} is no reference: {one_line(error)}")
        return built

    def __enter__(self) -> DeviceBench:
        self._pool.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.__exit__(kind, error, trace)
