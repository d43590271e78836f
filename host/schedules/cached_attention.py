"""What the rules of attention over a cache find in its function: extents, options and buffers."""

from __future__ import annotations

import json
from typing import Any

from tvm import s_tir

from host.lowering.decoding.shape import BLOCK, OPTIONS, CacheShape, fp32_lanes
from host.schedules.workload import Workload
from targets import HardwareModel

_ARGUMENTS = ("query", "key", "value", "position")
_SCALES, _CHANGED = ("key_scales", "value_scales"), ("key_cache", "value_cache", "output")


def is_cached_attention(workload: Workload) -> bool:
    """Whether it is the function of attention over a cache, which has one block of this name."""
    return [stage.name for stage in workload.stages] == [BLOCK]


def extents_of(workload: Workload, hardware: HardwareModel) -> CacheShape:
    """The extents of the function, with all that it states beside them.

    Args:
        workload: of the function.
        hardware: that it was written for.
    """
    [stage] = workload.stages
    query, cache = stage.reads[0], stage.reads[-1]
    rows, heads, size = query.shape
    key_heads, capacity, _ = cache.shape
    return CacheShape(
        rows,
        heads,
        key_heads,
        size,
        capacity,
        lanes=fp32_lanes(hardware),
        kept=cache.type.name,
        on_gpu=hardware.gpu is not None,
        **json.loads(dict(stage.stated)[OPTIONS]),
    )


def buffers_of(schedule: s_tir.Schedule, shape: CacheShape) -> dict[str, Any]:
    """The function's arguments, by the names that texts have for them."""
    found = schedule.get(schedule.get_sblock(BLOCK))
    names = (*_ARGUMENTS, *(_SCALES if shape.scaled else ()), *_CHANGED)
    return dict(zip(names, (one.source for one in (*found.reads, *found.writes)), strict=True))
