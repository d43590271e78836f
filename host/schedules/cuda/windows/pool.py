"""Pooling as the rule sees it, read off its workload."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from host.schedules.cuda.image_windows import ImageWindows, windows_of
from host.schedules.cuda.sources import Source, behind
from host.schedules.workload import Workload

# Elements of images whose vectors are one access.
_TYPES = ("float32", "float16", "int8", "uint8", "int32")
# Neighbours of a thread at most. TVM has no code for 16 bytes of a vector whose elements are computed.
_MOST_LANES = 8
# Taps along a row that are written out one after the other.
_MOST_TAPS = 32


@lru_cache(maxsize=256)
def pool_of(workload: Workload) -> ImageWindows | None:
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
    if not image.argument or image.data_dependent or image.type.name not in _TYPES:
        return None
    # It stands among the elements before they are widened.
    if not all(_holds(image.type.name, fill) for fill in fills):
        return None
    pool = windows_of(workload, image, bordered, _MOST_LANES)
    if pool is None or pool.taps == 1 or pool.columns.taps > _MOST_TAPS:
        return None
    return pool if pool.width > 1 else None


def _holds(dtype: str, number: float) -> bool:
    """Whether a number is one of a type."""
    kind = np.dtype(dtype)
    if kind.kind in "iu":
        return number.is_integer() and np.iinfo(kind).min <= number <= np.iinfo(kind).max
    with np.errstate(over="ignore"):
        return float(kind.type(number)) == number
