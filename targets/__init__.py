"""What a board is: one file per board, plain data, found by listing this folder."""

from __future__ import annotations

import importlib
import pkgutil

from targets.board import Board, MachineDescription
from targets.hardware import GpuModel, HardwareModel, MemoryLevel

__all__ = [
    "Board",
    "GpuModel",
    "HardwareModel",
    "MachineDescription",
    "MemoryLevel",
    "board_for",
    "board_names",
    "declared",
]

_NOT_BOARDS = {"board", "hardware", "nvidia"}


def board_names() -> tuple[str, ...]:
    """Names of all board files."""
    return tuple(sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name not in _NOT_BOARDS))


def board_for(description: MachineDescription, restrict: str = "") -> Board | None:
    """The board of a described machine, or None if no board file claims it."""
    for name in board_names():
        module = importlib.import_module(f"targets.{name}")
        if module.matches(description):
            board: Board = module.resolve(description, restrict)
            return board
    return None


def declared() -> dict[str, MachineDescription]:
    """Typical machines by the name that can be compiled for without having one."""
    found: dict[str, MachineDescription] = {}
    for name in board_names():
        found.update(importlib.import_module(f"targets.{name}").DECLARED)
    return dict(sorted(found.items()))
