"""A convolution of each channel by itself as the rule sees it, read off its workload."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from host.schedules.cuda.results import results_of
from host.schedules.cuda.sources import CHUNK_BYTES, Source, neighbours, source_of
from host.schedules.workload import Access, Stage, Workload

# By the type of the sums, types of the image and of the weights.
_TYPES = {
    "float32": (("float16",), ("float16",)),
    "int32": (("int8", "uint8"), ("int8",)),
}
# Fewer bytes of neighbouring channels are not worth a thread.
_LEAST_BYTES = 4
# Taps that one dot product adds up.
DOT = 4


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
class Window:
    """A convolution of each channel by itself.

    Attributes:
        stage: the anchor.
        outer: further spatial axes, images among them.
        rows, columns: directions of the image; memory goes along the columns first.
        channel: the axis of neighbours in memory.
        image: the argument that the image lies in, by the axes of the anchor.
        image_position: of the image among the anchor's reads.
        fill: what stands around the image.
        weights: the argument that the weights lie in.
        width: neighbouring channels that every operand and the result have side by side, a power of two.
        result: of the last stage.
    """

    stage: Stage
    outer: tuple[int, ...]
    rows: Side
    columns: Side
    channel: int
    image: Access
    image_position: int
    fill: int
    weights: Access
    width: int
    result: Access

    @property
    def bytes(self) -> bool:
        """Whether bytes are multiplied; else halves are."""
        return self.weights.element_bytes == 1

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
        """Taps of the window."""
        return self.rows.taps * self.columns.taps


@lru_cache(maxsize=256)
def window_of(workload: Workload) -> Window | None:
    """The convolution that a workload is, or None if it is none of each channel by itself.

    Halves or bytes, with neighbouring channels side by side in memory; one or two directions with a window.
    """
    anchor = workload.anchor_stage
    if not anchor.plain or workload.steps or len(anchor.reads) != 2 or anchor.write.type.name not in _TYPES:
        return None
    sources = [source_of(workload, access) for access in anchor.reads]
    for position in range(2):
        image, weights = sources[position], sources[1 - position]
        if image is None or weights is None:
            return None
        if not weights.bordered and not image.stored and not weights.stored:
            found = _window(workload, image, weights.access, position)
            if found is not None:
                return found
    return None


def _window(workload: Workload, image: Source, weights: Access, position: int) -> Window | None:
    anchor = workload.anchor_stage
    images, kinds = _TYPES[anchor.write.type.name]
    if image.access.type.name not in images or weights.type.name not in kinds or not anchor.spatial:
        return None
    *others, channel = anchor.spatial
    if image.access.offset(channel, 1) != 1 or weights.offset(channel, 1) != 1 or channel in image.bordered:
        return None
    if any(move.moved for axis in others for move in weights.moves[axis]):
        return None
    found = directions(anchor, image.access, tuple(others))
    results = results_of(workload, (channel,), CHUNK_BYTES)
    if found is None or results is None or results[1] != anchor.axes[channel].extent:
        return None
    rows, columns = found
    outer = tuple(axis for axis in others if axis not in (rows.axis, columns.axis))
    widths = [neighbours(anchor, access, channel) for access in (image.access, weights)]
    width = math.gcd(*widths, stored_together(workload, results[2]))
    if width * image.access.element_bytes < _LEAST_BYTES:
        return None
    return Window(
        anchor, outer, rows, columns, channel, image.access, position, image.fill, weights, width, results[2]
    )


def stored_together(workload: Workload, result: Access) -> int:
    """Neighbouring results that can be stored at once."""
    last = next(stage for stage in workload.stages if stage.write is result)
    if result.shape[-1] == 1 or result.offset(last.spatial[-1], 1) != 1 or result.type.name == "bool":
        return 1
    return math.gcd(CHUNK_BYTES // result.element_bytes, result.shape[-1])


def directions(anchor: Stage, image: Access, others: tuple[int, ...]) -> tuple[Side, Side] | None:
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
