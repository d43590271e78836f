"""Places for buffers in one block of memory, so that those in use at the same time do not overlap."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Buffer:
    """Memory that is needed for a part of a run.

    Attributes:
        size_bytes: its size.
        first: the step that writes it first.
        last: the step that reads it last; both steps count.
    """

    size_bytes: int
    first: int
    last: int


@dataclass(frozen=True)
class Layout:
    """The offsets of buffers in one block.

    Attributes:
        offsets: of each buffer, in bytes from the beginning of the block.
        size_bytes: of the block.
    """

    offsets: tuple[int, ...]
    size_bytes: int


def place(buffers: Sequence[Buffer], alignment: int) -> Layout:
    """Offsets that make the block small.

    Buffers are placed one after the other, each into the smallest gap that is large enough between those that
    are alive at the same time, or behind them. The result depends on the order. Orders by size, by the load
    of the step with the largest load, and by size times lifetime are tried, and the smallest block is taken
    (Y. Pisarchyk, J. Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020, sections 5.2 and
    5.3, for the first two).

    Args:
        buffers: with sizes above 0.
        alignment: every offset is a multiple of it.
    """
    sizes = [-(-buffer.size_bytes // alignment) * alignment for buffer in buffers]
    least = _largest_load(buffers, sizes)
    best: Layout | None = None
    for order in _orders(buffers, sizes):
        layout = _placed(buffers, sizes, order)
        if best is None or layout.size_bytes < best.size_bytes:
            best = layout
        if best.size_bytes == least:
            break
    return best or Layout((), 0)


def _orders(buffers: Sequence[Buffer], sizes: Sequence[int]) -> Iterable[list[int]]:
    def by(key: Callable[[int], int]) -> list[int]:
        # The place in the program decides between equals, so that the same program gets the same layout.
        return sorted(range(len(buffers)), key=lambda i: (-key(i), buffers[i].first, buffers[i].last, i))

    yield by(lambda i: sizes[i])
    loads = _loads(buffers, sizes)
    yield by(lambda i: int(loads[buffers[i].first : buffers[i].last + 1].max()))
    yield by(lambda i: sizes[i] * (buffers[i].last - buffers[i].first + 1))


def _loads(buffers: Sequence[Buffer], sizes: Sequence[int]) -> np.ndarray:
    """Bytes of all buffers that are in use at each step, shape (steps + 1,)."""
    changes = np.zeros(max((buffer.last for buffer in buffers), default=0) + 2, np.int64)
    for buffer, size in zip(buffers, sizes, strict=True):
        changes[buffer.first] += size
        changes[buffer.last + 1] -= size
    return np.cumsum(changes)


def _largest_load(buffers: Sequence[Buffer], sizes: Sequence[int]) -> int:
    """The most bytes that are in use at one step: a lower bound of any layout."""
    return int(_loads(buffers, sizes).max())


def _placed(buffers: Sequence[Buffer], sizes: Sequence[int], order: Sequence[int]) -> Layout:
    first = np.array([buffers[i].first for i in order])
    last = np.array([buffers[i].last for i in order])
    begin = np.zeros(len(order), np.int64)
    end = np.zeros(len(order), np.int64)
    offsets = [0] * len(buffers)
    for position, index in enumerate(order):
        buffer, size = buffers[index], sizes[index]
        together = (first[:position] <= buffer.last) & (last[:position] >= buffer.first)
        lows, highs = begin[:position][together], end[:position][together]
        ascending = np.argsort(lows, kind="stable")
        lows = lows[ascending]
        tops = np.maximum.accumulate(np.concatenate([[0], highs[ascending]]))
        # Between what ends highest so far and what begins next; behind all of them there is always room.
        gaps = lows - tops[:-1]
        fitting = np.flatnonzero(gaps >= size)
        offset = int(tops[fitting[np.argmin(gaps[fitting])]] if fitting.size else tops[-1])
        offsets[index] = offset
        begin[position], end[position] = offset, offset + size
    return Layout(tuple(offsets), int(end.max(initial=0)))
