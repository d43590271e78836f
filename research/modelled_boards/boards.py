"""Modelled boards as TOML files: `boards/NAME.toml` describes the processor's caches and memory.

Which programs a board gets is decided by its declaration, as for any board: by `targets`, or by a file of the
same name in `declared`. The two are independent: a modelled board has the figures that were measured or
published, and what a program takes there owes nothing to what the declaration says.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from host.errors import UserError
from targets import Board, declared_boards
from targets.files import load_board

_FOLDER = Path(__file__).parent
MOST_LEVELS = 3


@dataclass(frozen=True)
class CacheLevel:
    """A cache.

    Attributes:
        size_bytes: that one core can use.
        ways: associativity.
        latency_cycles: load to use.
        bytes_per_cycle: to the level before it; the loads from the first level are the pipeline's.
    """

    size_bytes: int
    ways: int
    latency_cycles: float
    bytes_per_cycle: float


@dataclass(frozen=True)
class ModelledBoard:
    """One core of a board as the model sees it.

    Attributes:
        name: of the file.
        title: for people.
        pipeline: llvm-mca's name of the pipeline.
        frequency_hz: clock.
        window: instructions that are dispatched after a load that misses until its value has to be there.
        misses: lines that can be outstanding.
        line_bytes: of all caches.
        page_bytes: of virtual memory.
        pages: entries of the first translation buffer, fully associative.
        translations, translation_ways: entries and ways of the second one.
        translation_cycles, walk_cycles: cost of a miss of the first one, and of the second one besides.
        streams: that the prefetcher follows at a time; 0 for none.
        distance: steps that it is ahead.
        confidence: equal steps in a row that start it.
        memory_latency_s: load to use.
        memory_bytes_per_s: what one core reads.
        levels: caches, innermost first.
    """

    name: str
    title: str
    pipeline: str
    frequency_hz: float
    window: int
    misses: int
    line_bytes: int
    page_bytes: int
    pages: int
    translations: int
    translation_ways: int
    translation_cycles: float
    walk_cycles: float
    streams: int
    distance: int
    confidence: int
    memory_latency_s: float
    memory_bytes_per_s: float
    levels: tuple[CacheLevel, ...]

    def declaration(self) -> Board:
        """The description of the board for which the product makes programs."""
        own = _FOLDER / "declared" / f"{self.name}.toml"
        if own.is_file():
            file = load_board(own)
            return file.resolve(file.describe())
        return declared_boards()[self.name]


def modelled_board_names() -> tuple[str, ...]:
    """The names of all modelled boards, sorted."""
    return tuple(sorted(path.stem for path in (_FOLDER / "boards").glob("*.toml")))


def modelled_board(name: str) -> ModelledBoard:
    """The modelled board of this name.

    Raises:
        UserError: there is none.
    """
    if name not in modelled_board_names():
        raise UserError(f"no modelled board {name}: use one of {', '.join(modelled_board_names())}")
    return read_board(_FOLDER / "boards" / f"{name}.toml")


def read_board(path: Path) -> ModelledBoard:
    """Read the file of a modelled board.

    Raises:
        UserError: a field is missing, unknown or not positive.
    """
    content = tomllib.loads(path.read_text())
    levels = tuple(_checked(path, CacheLevel, table) for table in content.pop("levels", []))
    if not 1 <= len(levels) <= MOST_LEVELS:
        raise UserError(f"{path} has {len(levels)} levels: write one to {MOST_LEVELS}")
    board: ModelledBoard = _checked(path, ModelledBoard, {"name": path.stem, **content, "levels": levels})
    return board


def _checked(path: Path, kind: Any, content: dict[str, Any]) -> Any:
    names = {field.name for field in fields(kind)}
    if names != set(content):
        raise UserError(f"{path}: fields {', '.join(sorted(names ^ set(content)))} are missing or unknown")
    for name, value in content.items():
        if isinstance(value, (int, float)) and value <= 0 and name != "streams":
            raise UserError(f"{path}: {name} is {value}: write a positive number")
    return kind(**content)
