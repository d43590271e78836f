"""The caches and the clock of timeline.c, and what Unicorn's hooks count."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from host.emulation.kernel_run import Event, KernelRun, compiled_hooks
from host.emulation.library import BASE, SharedLibrary
from research.modelled_boards.boards import MOST_LEVELS, ModelledBoard
from research.modelled_boards.listing import Block

_SOURCE = Path(__file__).with_name("timeline.c")
_MOST_MISSES, _MOST_STREAMS, _MOST_PAGES = 64, 32, 64
_NEVER = (1 << 64) - 1
_LINE_BYTES = 32
_u64, _u32, _f64, _pointer = ctypes.c_uint64, ctypes.c_uint32, ctypes.c_double, ctypes.c_void_p


def _fields(kind: Any, names: str) -> list[Any]:
    return [(name, kind) for name in names.split()]


class _Counts(ctypes.Structure):
    _fields_ = [*_fields(_u64, "base bytes"), *_fields(_pointer, "runs sizes")]


class _Level(ctypes.Structure):
    _fields_ = [
        *_fields(_u64, "sets ways"),
        *_fields(_f64, "latency transfer free"),
        ("lines", _pointer),
        *_fields(_u64, "hits misses"),
    ]


class _Miss(ctypes.Structure):
    _fields_ = [("limit", _u64), ("ready", _f64)]


class _Stream(ctypes.Structure):
    _fields_ = [
        *_fields(ctypes.c_int64, "last stride ahead"),
        ("used", _u64),
        *_fields(_u32, "seen unused"),
    ]


class _Page(ctypes.Structure):
    _fields_ = [("page", _u64), ("used", _u64)]


class _Timeline(ctypes.Structure):
    _fields_ = [
        *_fields(_u64, "base bytes"),
        *_fields(_pointer, "cycles instructions accesses"),
        *_fields(_u64, "window misses levels line_bits page_bits pages streams distance confidence"),
        *_fields(_f64, "memory_latency memory_transfer translation walk"),
        *_fields(_f64, "now memory_free left step waited"),
        *_fields(_u64, "position block seen gap rest clock next_limit"),
        *_fields(_u64, "outstanding lines_read lines_written prefetches"),
        ("level", _Level * MOST_LEVELS),
        ("translations", _Level),
        ("miss", _Miss * _MOST_MISSES),
        ("stream", _Stream * _MOST_STREAMS),
        ("page", _Page * _MOST_PAGES),
        *_fields(_u64, "last_line last_page"),
        ("last", _pointer),
    ]


class BlockCounter:
    """Counts the blocks that a run executes.

    Args:
        run: not called yet.
        library: that it runs.
    """

    def __init__(self, run: KernelRun, library: SharedLibrary) -> None:
        places = library.memory_bytes // 2
        self._runs, self._sizes = np.zeros(places, np.uint64), np.zeros(places, np.uint32)
        counts = _Counts(BASE, library.memory_bytes, self._runs.ctypes.data, self._sizes.ctypes.data)
        run.watch(Event.BLOCK, compiled_hooks(_SOURCE.read_text()).count_block, counts)

    def blocks(self) -> list[Block]:
        """All that were executed, by their addresses in the library."""
        executed = np.flatnonzero(self._runs)
        return [Block(2 * int(at), int(self._sizes[at]), int(self._runs[at])) for at in executed]


@dataclass(frozen=True)
class Elapsed:
    """The time and the counts of one run of a kernel.

    Attributes:
        cycles: from the call until all its data has arrived.
        waited: of them, those that dispatch waited for data.
        misses: lines that each cache did not have.
        lines_read, lines_written: between the caches and the memory.
        prefetches: lines that were fetched ahead.
    """

    cycles: float
    waited: float
    misses: tuple[int, ...]
    lines_read: int
    lines_written: int
    prefetches: int


class Timeline:
    """The clock of a board while a kernel runs; caches are empty at first.

    Args:
        board: whose caches.
        run: not called yet.
        library: that it runs.
        cycles: of each block, by its address in the library.
        instructions: of each block.
    """

    def __init__(
        self,
        board: ModelledBoard,
        run: KernelRun,
        library: SharedLibrary,
        cycles: Mapping[int, float],
        instructions: Mapping[int, int],
    ) -> None:
        self._hooks = compiled_hooks(_SOURCE.read_text())
        self._board = board
        self._kept: list[np.ndarray] = []
        state = self._state = _Timeline()
        places = library.memory_bytes // 2
        of_cycles, of_instructions = np.zeros(places), np.zeros(places, np.uint32)
        for address, value in cycles.items():
            of_cycles[address // 2] = value
            of_instructions[address // 2] = instructions[address]
        state.base, state.bytes = BASE, library.memory_bytes
        state.cycles, state.instructions = self._keep(of_cycles), self._keep(of_instructions)
        state.accesses = self._keep(np.zeros(places, np.uint32))
        self._describe()
        state.block = state.next_limit = state.last_line = state.last_page = _NEVER
        run.watch(Event.BLOCK, self._hooks.begin_block, state)
        run.watch(Event.ACCESS, self._hooks.access_data, state)

    def _keep(self, array: np.ndarray) -> int:
        self._kept.append(array)
        return int(array.ctypes.data)

    def _describe(self) -> None:
        state, board = self._state, self._board
        state.window, state.misses = board.window, min(board.misses, _MOST_MISSES)
        state.levels = len(board.levels)
        state.line_bits = board.line_bytes.bit_length() - 1
        state.page_bits = board.page_bytes.bit_length() - 1
        state.pages = min(board.pages, _MOST_PAGES)
        state.streams = min(board.streams, _MOST_STREAMS)
        state.distance, state.confidence = board.distance, board.confidence
        first = board.levels[0].latency_cycles
        state.memory_latency = board.memory_latency_s * board.frequency_hz - first
        state.memory_transfer = board.line_bytes * board.frequency_hz / board.memory_bytes_per_s
        state.translation, state.walk = board.translation_cycles, board.walk_cycles
        for level, made in zip(board.levels, state.level, strict=False):
            self._make(made, level.size_bytes // board.line_bytes, level.ways)
            made.latency = level.latency_cycles - first
            made.transfer = board.line_bytes / level.bytes_per_cycle
        self._make(state.translations, board.translations, board.translation_ways)

    def _make(self, level: _Level, entries: int, ways: int) -> None:
        level.sets, level.ways = entries // ways, ways
        level.lines = self._keep(np.zeros(entries * _LINE_BYTES, np.uint8))

    def produce(self, address: int, count: int) -> None:
        """Bytes that another kernel has just written are in the caches, as far as they fit."""
        self._hooks.produce(ctypes.byref(self._state), _u64(address), _u64(count))
        self.elapsed()

    def elapsed(self) -> Elapsed:
        """What all calls took since the last time that this was asked; caches keep what they hold."""
        state = self._state
        self._hooks.finish(ctypes.byref(state))
        levels = [state.level[number] for number in range(state.levels)]
        found = Elapsed(
            state.now,
            state.waited,
            tuple(level.misses for level in levels),
            state.lines_read,
            state.lines_written,
            state.prefetches,
        )
        for level in levels:
            level.hits = level.misses = 0
        state.lines_read = state.lines_written = state.prefetches = 0
        self._hooks.restart(ctypes.byref(state))
        return found
