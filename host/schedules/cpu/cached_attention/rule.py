"""Attention over a cache: the function is tiled as it is written, and threads share its heads."""

from __future__ import annotations

import math
from collections.abc import Mapping

from host.lowering.decoding.function import BLOCK
from host.schedules.api import CPU, Decisions, Rule, Sampler
from host.schedules.constants import EstimateConstant
from host.schedules.cpu.streams import shared_seconds
from host.schedules.workload import Workload
from targets import HardwareModel

# Share of the cache that a call reads on the average of a text, from none to all of its places.
_FILLED = EstimateConstant("cached_attention.filled", 0.5)
# Cycles of a multiply-add of whole vectors with what surrounds it.
_STEP_CYCLES = EstimateConstant("cached_attention.step", 1.5)


class CachedAttention(Rule):
    """One block for each head of keys."""

    name = "cached_attention"
    processor = CPU
    version = 1
    priority = 7
    constants = (_FILLED, _STEP_CYCLES)
    decisions = ()

    def matches(self, workload: Workload, hardware: HardwareModel) -> bool:
        """The function of an attention over a cache, which has one block of this name."""
        return [stage.name for stage in workload.stages] == [BLOCK]

    def choices(self, workload: Workload, hardware: HardwareModel) -> Mapping[str, tuple[int, ...]]:
        """None: rows of a tile and vectors are part of the function."""
        return {}

    def legal(self, workload: Workload, hardware: HardwareModel, values: Decisions) -> bool:
        """Always: threads alone are decided."""
        return True

    def apply(self, sampler: Sampler, workload: Workload, hardware: HardwareModel, threads: int) -> None:
        """Divide the heads among the threads; nothing else is decided."""
        [head] = sampler.schedule.get_loops(sampler.schedule.get_sblock(BLOCK))
        if threads > 1:
            sampler.schedule.parallel(head)

    def estimate_s(
        self, workload: Workload, hardware: HardwareModel, threads: int, values: Decisions
    ) -> float:
        """Estimated seconds of one call: multiply-adds of both products, or reading the cache once."""
        [stage] = workload.stages
        query, cache = stage.reads[0], stage.reads[-1]
        heads, size = stage.axes[0].extent, cache.shape[-1]
        rows = math.prod(query.shape) / size
        positions = cache.shape[1] * _FILLED.on(hardware)
        steps = 2.0 * rows * positions * size / hardware.lanes
        arithmetic = steps * _STEP_CYCLES.on(hardware) / hardware.fma_per_cycle / hardware.frequency_hz
        kept = 2.0 * heads * positions * size * cache.element_bytes
        moved = kept / hardware.level_of(kept).bandwidth_bytes_per_s
        shared = min(threads, heads)
        return shared_seconds(max(arithmetic, moved), hardware, shared)


RULE = CachedAttention()
