"""Chains of elements that are read at computed places, and how many neighbours a thread may take of them."""

from __future__ import annotations

import math
from functools import lru_cache

from host.schedules.cuda.sources import CHUNK_BYTES, begins_at, in_order
from host.schedules.workload import Access, Stage, Workload

# Neighbours of a thread at most: those of halves that are 16 bytes.
_MOST_LANES = 8
# Types whose vectors are one access; a vector of booleans is not stored as bytes.
_TYPES = ("float32", "float16", "int32", "int8", "uint8")


@lru_cache(maxsize=256)
def vector_of(workload: Workload) -> int:
    """Neighbours of the result that a thread may take together; 1 where the rule has nothing to gain.

    Some element is read at a place that is computed, of data or in floating point, and its neighbours lie
    side by side all the same. Everything else has neighbours too, or one element for all of them.
    """
    last = workload.stages[-1]
    plain = all(stage.kind == "injective" and not stage.conditional for stage in workload.stages)
    if not plain or workload.steps or workload.parts or not last.axes:
        return 1
    if [stage for stage in workload.stages if stage.write.argument] != [last] or not in_order(last):
        return 1
    accesses = [(stage, one) for stage in workload.stages for one in (*stage.reads, stage.write)]
    computed = [one for _, one in accesses if one.data_dependent]
    if not any(one.along_last for one in computed):
        return 1
    return math.gcd(
        _MOST_LANES,
        CHUNK_BYTES // min(one.element_bytes for _, one in accesses if one.argument),
        last.axes[-1].extent,
        *(_neighbours(stage, one) for stage, one in accesses),
    )


def _neighbours(stage: Stage, access: Access) -> int:
    """Neighbours along a stage's last axis that are aligned wherever they lie, or one element for all."""
    if not stage.axes or (access.argument and access.type.name not in _TYPES and not _same(access)):
        return 1
    if access.data_dependent:
        return math.gcd(_MOST_LANES, access.shape[-1]) if access.along_last else 1
    if _same(access):
        return _MOST_LANES
    return begins_at(access, len(stage.axes) - 1, _MOST_LANES) if access.strides[-1] == 1 else 1


def _same(access: Access) -> bool:
    """Whether all neighbours read one element."""
    return not access.data_dependent and not access.uses(len(access.moves) - 1)
