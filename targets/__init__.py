"""Boards as plain data: one file per board, found by listing this folder."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence

from targets.board import Board, MachineDescription
from targets.files import BoardFile, BoardFileError, board_files, load_board
from targets.hardware import Bfloat16Products, GpuMode, GpuModel, HardwareModel, MatrixTiles, MemoryLevel

__all__ = [
    "Bfloat16Products",
    "Board",
    "BoardFileError",
    "GpuMode",
    "GpuModel",
    "HardwareModel",
    "MachineDescription",
    "MatrixTiles",
    "MemoryLevel",
    "board_for",
    "board_names",
    "declared",
    "declared_boards",
    "families",
    "family_of",
]

_NOT_BOARDS = {"board", "bounds", "files", "hardware", "nvidia"}


def board_names() -> tuple[str, ...]:
    """Names of all boards: modules and TOML files of this folder, and the user's files."""
    return tuple(sorted({*_modules(), *board_files()}))


def board_for(description: MachineDescription, restrict: str = "") -> Board | None:
    """The board that fits a described machine best, or None if none claims it.

    Args:
        description: the agent's report.
        restrict: part of the processor to leave unused, where the board knows it ("avx2").

    Raises:
        BoardFileError: a board file cannot be used.
    """
    chosen = board_files().get(description.board)
    if chosen is not None:
        return load_board(chosen).resolve(description)
    return _fitting(description, restrict, None)


def declared_boards() -> dict[str, Board]:
    """The boards of the machines of `declared`, by the same names; a machine that none claims is left out.

    Raises:
        BoardFileError: a board file cannot be used.
    """
    boards = _declared_boards()
    found = {name: _fitting(description, "", boards) for name, description in _described(boards).items()}
    return {name: board for name, board in found.items() if board is not None}


def _fitting(
    description: MachineDescription, restrict: str, boards: Sequence[BoardFile] | None
) -> Board | None:
    """See `board_for`; the board files are read where they are not given."""
    for name in _modules():
        module = importlib.import_module(f"targets.{name}")
        if module.matches(description):
            board: Board = module.resolve(description, restrict)
            return board
    boards = _declared_boards() if boards is None else boards
    best = max(boards, key=lambda board: board.matches(description), default=None)
    if best is None or not best.matches(description):
        return None
    if restrict:
        raise ValueError(f"board {best.name} knows no restriction {restrict!r}")
    return best.resolve(description)


def declared() -> dict[str, MachineDescription]:
    """Typical machines by the name that can be compiled for without having one.

    Raises:
        BoardFileError: a board file cannot be used.
    """
    return _described(_declared_boards())


def _described(boards: Sequence[BoardFile]) -> dict[str, MachineDescription]:
    found = {board.name: board.describe() for board in boards}
    for name in _modules():
        found.update(importlib.import_module(f"targets.{name}").DECLARED)
    return dict(sorted(found.items()))


def families() -> dict[str, tuple[str, ...]]:
    """Boards by the name of their family: "jetson" names any of the Jetsons.

    Raises:
        BoardFileError: a board file cannot be used.
    """
    found: dict[str, list[str]] = {}
    for board in _declared_boards():
        if board.family:
            found.setdefault(board.family, []).append(board.name)
    return {family: tuple(sorted(names)) for family, names in sorted(found.items())}


def family_of(board_name: str) -> str:
    """The family of a board, "" for none.

    Raises:
        BoardFileError: a board file cannot be used.
    """
    return next((family for family, names in families().items() if board_name in names), "")


def _modules() -> tuple[str, ...]:
    return tuple(sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name not in _NOT_BOARDS))


def _declared_boards() -> list[BoardFile]:
    return [load_board(path) for path in board_files().values()]
