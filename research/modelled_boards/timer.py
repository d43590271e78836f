"""Times programs on a modelled board, as `research.collection` takes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import tvm

from host.build import build_kernel_library, target_for
from host.emulation.library import SharedLibrary
from host.errors import BuildError, EngineError
from host.model import DeviceProfile, Task
from host.schedules import DesignSpace
from research.evaluation.bench import arguments_of
from research.modelled_boards.boards import ModelledBoard
from research.modelled_boards.listing import disassemble
from research.modelled_boards.processor import ModelledProcessor


def profile_of_modelled(board: ModelledBoard) -> DeviceProfile:
    """The profile of one core of a modelled board."""
    declaration = board.declaration()
    return DeviceProfile(board.name, declaration, declaration.hardware, 1)


class ModelledTimer:
    """Times programs on a modelled board; the same program always takes the same time.

    Args:
        board: which.
        folder: for a library at a time.
    """

    # Nothing varies from round to round.
    rounds = 1

    def __init__(self, board: ModelledBoard, folder: Path) -> None:
        self._processor = ModelledProcessor(board)
        self._board = board.declaration()
        self._folder = folder

    def times(
        self, space: DesignSpace, functions: Mapping[str, tvm.tirx.PrimFunc], note: Callable[[str], None]
    ) -> Mapping[str, Sequence[float]]:
        """See `research.collection.collect.Timer`."""
        return self.times_of(space.task, functions, note)

    def times_of(
        self, task: Task, functions: Mapping[str, tvm.tirx.PrimFunc], note: Callable[[str], None]
    ) -> Mapping[str, Sequence[float]]:
        """Seconds of programs of a task; those that fail are noted and left out."""
        path = self._folder / "programs.so"
        try:
            build_kernel_library(dict(functions), path, target_for(self._board))
        except BuildError as error:
            note(f"{task.name}: {error}")
            return {}
        library = SharedLibrary(path.read_bytes())
        listing = disassemble(path, self._board.architecture)
        found: dict[str, tuple[float]] = {}
        for name in functions:
            try:
                time = self._processor.time(library, listing, name, arguments_of(task))
            except (EngineError, RuntimeError) as error:
                note(f"{task.name}: {error}")
                continue
            found[name] = (time.seconds,)
        return found
