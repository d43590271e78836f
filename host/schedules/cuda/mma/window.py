"""What all taps of a convolution's window read of an image, in shared memory at once.

An image in shared memory has its rows one after the other, with the places around it. So a tap is the same
step for all results of a block: the rows of the left operand are numbered through the padded image, and those
behind the end of a row of results are computed and left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from host.schedules.cuda.sources import unit
from host.schedules.workload import Access, Stage

# Chunks of a place in shared memory: powers of two, as the exchange of chunks wants them.
_CHUNKS = (1, 2, 4, 8)


@dataclass(frozen=True)
class Window:
    """The taps of a convolution of one image, and how its padded image lies in shared memory.

    Attributes:
        across: axis of the results along a row of the image.
        kept: results of a row.
        width: places of a row of the padded image.
        places: of the padded image.
        taps: of the window, down and across.
        steps: places from one tap to the next, down and across.
        chunks: of a place: all channels of a product.
    """

    across: int
    kept: int
    width: int
    places: int
    taps: tuple[int, int]
    steps: tuple[int, int]
    chunks: int

    @property
    def further(self) -> int:
        """Places from the first tap to the last one."""
        return sum((taps - 1) * step for taps, step in zip(self.taps, self.steps, strict=True))

    def place(self, chunk: Any) -> tuple[Any, Any]:
        """How many places further a chunk of the depth lies, and which one of its place it is.

        A depth that is filled up ends with the last tap again, whose numbers are multiplied by zeros.
        """
        tap = tirx.min(chunk // self.chunks, math.prod(self.taps) - 1)
        down, across = tap // self.taps[1], tap % self.taps[1]
        return down * self.steps[0] + across * self.steps[1], chunk % self.chunks


def window_of(
    anchor: Stage, read: Access, outer: tuple[int, ...], depth: tuple[int, ...], chunk: int
) -> Window | None:
    """The window of a product, or None where it is no convolution of one image by steps of one place.

    Args:
        anchor: the product, its columns split into groups.
        read: what it reads as its left operand: the image with the places around it.
        outer: axes of the rows.
        depth: axes of the reduction.
        chunk: elements of a chunk.
    """
    dims = len(read.shape)
    if len(outer) != 2 or len(depth) < 3 or dims < 3 or any(read.origin) or math.prod(read.shape[:-3]) != 1:
        return None
    rows, columns = dims - 3, dims - 2
    steps = []
    for dim, axis, tap in ((rows, outer[0], depth[0]), (columns, outer[1], depth[1])):
        if len(read.moves[axis]) != 1 or len(read.moves[tap]) != 1:
            return None
        result, along = read.moves[axis][0], read.moves[tap][0]
        if result.steps != unit(dim, dims) or [one for one, _ in along.moved] != [dim]:
            return None
        steps.append(along.steps[dim] * math.prod(read.shape[dim + 1 : -1]))
    if any(dim != dims - 1 for axis in depth[2:] for move in read.moves[axis] for dim, _ in move.moved):
        return None
    channels = math.prod(anchor.axes[axis].extent for axis in depth[2:])
    if channels % chunk or channels // chunk not in _CHUNKS or min(steps) < 1:
        return None
    return Window(
        across=outer[1],
        kept=anchor.axes[outer[1]].extent,
        width=read.shape[columns],
        places=read.shape[rows] * read.shape[columns],
        taps=(anchor.axes[depth[0]].extent, anchor.axes[depth[1]].extent),
        steps=(steps[0], steps[1]),
        chunks=channels // chunk,
    )
