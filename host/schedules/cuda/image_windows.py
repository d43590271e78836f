"""Windows of an image whose channels lie side by side, and the tile of a thread that computes their results.

Pooling and convolutions of each channel by itself are of this kind: no two channels meet, so that a thread
has some neighbouring channels of a few results, and needs no shared memory.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Container
from dataclasses import dataclass

from host.schedules.cuda.multiprocessor import register_limit
from host.schedules.cuda.results import results_of
from host.schedules.cuda.sources import CHUNK_BYTES, neighbours
from host.schedules.workload import Access, Stage, Workload
from targets import GpuModel

# Results of a thread along both directions of the image, and threads of a block.
TILE_ROWS, TILE_COLUMNS, THREADS = (1, 2, 4), (1, 2, 3, 4, 7, 8), (32, 64, 128, 256)


@dataclass(frozen=True)
class Side:
    """One direction of the image.

    Attributes:
        axis: of the anchor; None where the image has no such direction.
        extent: results along it.
        stride: places of the image from one result to the next.
        tap: axis of the window; None where the window has one tap along it.
        taps: of the window.
        distance: places of the image from one tap to the next.
    """

    axis: int | None = None
    extent: int = 1
    stride: int = 1
    tap: int | None = None
    taps: int = 1
    distance: int = 1

    def places(self, results: int) -> list[tuple[int, int, int]]:
        """The places of the image that neighbouring results read, in order.

        Each with the first of the results that read it, and the tap by which that one does.
        """
        found: dict[int, tuple[int, int]] = {}
        for result in range(results):
            for tap in range(self.taps):
                found.setdefault(result * self.stride + tap * self.distance, (result, tap))
        return [(place, *found[place]) for place in sorted(found)]


@dataclass(frozen=True)
class ImageWindows:
    """Results over the windows of an image, of each channel by itself.

    Attributes:
        stage: the anchor.
        outer: further spatial axes, images among them.
        rows, columns: directions of the image; memory goes along the columns first.
        channel: the axis of neighbours in memory.
        image: the argument that the image lies in, by the axes of the anchor.
        width: neighbouring channels that every operand and the result have side by side, a power of two.
        result: of the last stage.
    """

    stage: Stage
    outer: tuple[int, ...]
    rows: Side
    columns: Side
    channel: int
    image: Access
    width: int
    result: Access

    @property
    def channels(self) -> int:
        """Number of channels."""
        return self.stage.axes[self.channel].extent

    @property
    def images(self) -> int:
        """Number of independent images."""
        return math.prod(self.stage.axes[axis].extent for axis in self.outer)

    @property
    def taps(self) -> int:
        """Taps of a window."""
        return self.rows.taps * self.columns.taps


@dataclass(frozen=True)
class ThreadTile(ABC):
    """What a thread computes.

    Attributes:
        window: of the image.
        width: neighbouring channels.
        rows, columns: results along both directions of the image.
        threads: of a block.
    """

    window: ImageWindows
    width: int
    rows: int
    columns: int
    threads: int

    @property
    def results(self) -> int:
        """Results of a thread for one channel."""
        return self.rows * self.columns

    @property
    def row_places(self) -> int:
        """Rows of the image that a thread reads."""
        return len(self.window.rows.places(self.rows))

    @property
    def column_places(self) -> int:
        """Places of each of these rows that it reads."""
        return len(self.window.columns.places(self.columns))

    @property
    def places(self) -> int:
        """Vectors of the image that a thread loads."""
        return self.row_places * self.column_places

    @property
    @abstractmethod
    def registers(self) -> int:
        """Registers that a thread needs."""

    @property
    def total(self) -> int:
        """Threads of the whole program."""
        window = self.window
        rows, columns = -(-window.rows.extent // self.rows), -(-window.columns.extent // self.columns)
        return window.images * rows * columns * (window.channels // self.width)

    @property
    def grid(self) -> int:
        """Blocks of the whole program."""
        return -(-self.total // self.threads)

    def fits(self, gpu: GpuModel) -> bool:
        """Whether a GPU has the threads of a block, and their registers."""
        return self.threads <= gpu.threads_per_block and self.registers <= register_limit(gpu, self.threads)


def up_to(sizes: tuple[int, ...], extent: int) -> tuple[int, ...]:
    """The sizes that an extent fills."""
    return tuple(size for size in sizes if size <= extent)


def windows_of(workload: Workload, image: Access, bordered: Container[int], most: int) -> ImageWindows | None:
    """The windows of an image, or None where neighbouring channels do not lie side by side.

    Args:
        workload: whose anchor reads the image.
        image: the argument that it lies in, by the axes of the anchor.
        bordered: axes of the anchor along which something else stands around the image.
        most: neighbouring channels at most, a power of two.
    """
    anchor = workload.anchor_stage
    *others, channel = anchor.spatial
    if image.offset(channel, 1) != 1 or channel in bordered:
        return None
    sides = _directions(anchor, image, tuple(others))
    results = results_of(workload, (channel,), CHUNK_BYTES)
    if sides is None or results is None or results[1] != anchor.axes[channel].extent:
        return None
    rows, columns = sides
    outer = tuple(axis for axis in others if axis not in (rows.axis, columns.axis))
    width = math.gcd(most, neighbours(anchor, image, channel), _stored_together(workload, results[2]))
    return ImageWindows(anchor, outer, rows, columns, channel, image, width, results[2])


def _stored_together(workload: Workload, result: Access) -> int:
    """Neighbouring results that can be stored at once."""
    last = next(stage for stage in workload.stages if stage.write is result)
    if result.shape[-1] == 1 or result.offset(last.spatial[-1], 1) != 1 or result.type.name == "bool":
        return 1
    return math.gcd(CHUNK_BYTES // result.element_bytes, result.shape[-1])


def _directions(anchor: Stage, image: Access, others: tuple[int, ...]) -> tuple[Side, Side] | None:
    """Rows and columns of an image; None where taps do not move along two directions at most.

    Args:
        anchor: a convolution, or a reduction over windows.
        image: what windows are of.
        others: spatial axes of the anchor beside the channels.
    """
    long = [axis for axis in others if anchor.axes[axis].extent > 1]
    taps: dict[int, tuple[int, int]] = {}
    for tap in anchor.reduction:
        if anchor.axes[tap].extent == 1:
            continue
        moved = _moved(image, tap)
        along = [axis for axis in others if moved and _moved(image, axis) and _same_way(image, axis, tap)]
        if moved is None or len(along) != 1 or along[0] in taps:
            return None
        taps[along[0]] = (tap, moved[1])
    if len(taps) > 2 or any(axis not in long for axis in taps):
        return None
    chosen = sorted({*taps, *[axis for axis in reversed(long) if axis not in taps][: 2 - len(taps)]})
    sides = [_side(anchor, image, axis, taps.get(axis)) for axis in chosen]
    if None in sides:
        return None
    found = [side for side in sides if side is not None]
    while len(found) < 2:
        found.insert(0, Side())
    return found[0], found[1]


def _moved(image: Access, axis: int) -> tuple[int, int] | None:
    """The dimension of the image that an axis moves in, and by how much; None if it is not one."""
    moves = image.moves[axis]
    if len(moves) != 1 or len(moves[0].moved) != 1 or moves[0].every != 1:
        return None
    return moves[0].moved[0]


def _same_way(image: Access, axis: int, tap: int) -> bool:
    one, other = _moved(image, axis), _moved(image, tap)
    return one is not None and other is not None and one[0] == other[0]


def _side(anchor: Stage, image: Access, axis: int, tap: tuple[int, int] | None) -> Side | None:
    moved = _moved(image, axis)
    if moved is None or moved[1] < 1 or (tap is not None and tap[1] < 1):
        return None
    extent = anchor.axes[axis].extent
    if tap is None:
        return Side(axis, extent, moved[1])
    return Side(axis, extent, moved[1], tap[0], anchor.axes[tap[0]].extent, tap[1])
