"""Pooling as the rule sees it, read off its workload."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from host.schedules.cuda.depthwise.window import Side, directions, stored_together
from host.schedules.cuda.results import results_of
from host.schedules.cuda.sources import CHUNK_BYTES, Source, behind, neighbours
from host.schedules.workload import Access, Stage, Workload

# Elements of images whose vectors are one access.
_TYPES = ("float32", "float16", "int8", "uint8", "int32")
# Neighbours of a thread at most. TVM has no code for 16 bytes of a vector whose elements are computed.
_MOST_LANES = 8
# Taps along a row that are written out one after the other.
_MOST_TAPS = 32


@dataclass(frozen=True)
class Pool:
    """A reduction over the windows of an image, of each channel by itself.

    Attributes:
        stage: the anchor.
        outer: further spatial axes, images among them.
        rows, columns: directions of the image; memory goes along the columns first.
        channel: the axis of neighbours in memory.
        image: the argument that the image lies in, by the axes of the anchor.
        width: neighbouring channels that the image and the result have side by side, a power of two.
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


@lru_cache(maxsize=256)
def pool_of(workload: Workload) -> Pool | None:
    """The pooling that a workload is, or None if it is none with neighbouring channels side by side.

    One or two directions with a window; stages before the anchor only move, widen or fill up the image.
    """
    anchor = workload.anchor_stage
    plain = anchor.kind == "reduction" and len(anchor.reads) == 1 and not workload.steps
    if not plain or workload.parts or not anchor.spatial or anchor.reads[0].data_dependent:
        return None
    before = workload.stages[: workload.anchor]
    found = behind(workload, anchor.reads[0])
    # What surrounds an image is one number.
    if found is None or isinstance(found, Source) or sum(stage.kind == "padding" for stage in before) > 1:
        return None
    image, bordered, fills = found
    *others, channel = anchor.spatial
    if not image.argument or image.data_dependent or image.type.name not in _TYPES:
        return None
    if image.offset(channel, 1) != 1 or channel in bordered:
        return None
    # It stands among the elements before they are widened.
    if not all(_holds(image.type.name, fill) for fill in fills):
        return None
    sides = directions(anchor, image, tuple(others))
    results = results_of(workload, (channel,), CHUNK_BYTES)
    if sides is None or results is None or results[1] != anchor.axes[channel].extent:
        return None
    rows, columns = sides
    if rows.taps * columns.taps == 1 or columns.taps > _MOST_TAPS:
        return None
    outer = tuple(axis for axis in others if axis not in (rows.axis, columns.axis))
    width = math.gcd(_MOST_LANES, neighbours(anchor, image, channel), stored_together(workload, results[2]))
    return Pool(anchor, outer, rows, columns, channel, image, width, results[2]) if width > 1 else None


def _holds(dtype: str, number: float) -> bool:
    """Whether a number is one of a type."""
    kind = np.dtype(dtype)
    if kind.kind in "iu":
        return number.is_integer() and np.iinfo(kind).min <= number <= np.iinfo(kind).max
    with np.errstate(over="ignore"):
        return float(kind.type(number)) == number
