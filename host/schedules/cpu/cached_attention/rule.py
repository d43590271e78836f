"""Attention over a cache: the function is tiled as it is written; threads share its heads and positions."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from host.lowering.decoding.blocked import block_positions
from host.lowering.decoding.shape import BLOCK
from host.schedules.api import CPU, PARALLEL, DecisionKind, Decisions, Level, Rule, Sampler, WordClass
from host.schedules.cached_attention import extents_of, is_cached_attention
from host.schedules.cpu.cached_attention.cost import (
    CONSTANTS,
    cached_attention_seconds,
    part_bytes,
    read_at_most,
    shared_from,
)
from host.schedules.cpu.cached_attention.program import put_split
from host.schedules.workload import Workload
from targets import HardwareModel

# Parts of the positions, and bytes of all their sums.
_SPLITS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)
_MOST_PARTS_BYTES = 8 << 20


class CachedAttention(Rule):
    """One block for each head of keys, or for each part of the positions of one."""

    name = "cached_attention"
    processor = CPU
    version = 5
    priority = 7
    # A measured call is at position 0, where parts only cost.
    measurable = False
    # Parts are nothing without threads, and threads may be nothing without parts.
    coupled = True
    constants = CONSTANTS
    decisions = (DecisionKind("splits", Level.BLOCK, WordClass.PARALLEL, of_threads=True, orders=True),)

    def matches(self, workload: Workload, hardware: HardwareModel) -> bool:
        """The function of an attention over a cache."""
        return is_cached_attention(workload)

    def choices(self, workload: Workload, hardware: HardwareModel) -> Mapping[str, tuple[int, ...]]:
        """Parts that have positions in a full cache, and are worth waking threads for.

        Rows of a tile and vectors are part of the function.
        """
        shape = extents_of(workload, hardware)
        block = block_positions(shape)

        def useful(splits: int) -> bool:
            if splits * block > shape.capacity or part_bytes(shape, splits) > _MOST_PARTS_BYTES:
                return False
            return shared_from(shape, hardware, splits) < read_at_most(shape)

        return {"splits": tuple(n for n in _SPLITS if n == 1 or useful(n))}

    def legal(self, workload: Workload, hardware: HardwareModel, values: Decisions) -> bool:
        """No more parts than threads: as many divide the work of any number of heads evenly.

        More than 16 threads have up to 16 parts of each head.
        """
        return _splits(values) <= values.get(PARALLEL.name, 1)

    def row_of(self, workload: Workload) -> Hashable | None:
        """The extents of the heads and of the cache, and what the function states."""
        [stage] = workload.stages
        query, cache = stage.reads[0], stage.reads[-1]
        return query.shape[1:], cache.shape, cache.type.name, stage.stated

    def traces(self, values: Decisions) -> bool:
        """Programs with several parts take the place of the function's body, which is no step of a trace."""
        return _splits(values) == 1

    def apply(self, sampler: Sampler, workload: Workload, hardware: HardwareModel, threads: int) -> None:
        """Divides the heads among the threads, or the parts of all of them."""
        schedule, splits = sampler.schedule, _splits(sampler.values)
        if splits > 1:
            sampler.sample("splits")
            shape = extents_of(workload, hardware)
            put_split(schedule, shape, splits, shared_from(shape, hardware, splits))
        elif threads > 1:
            [head] = schedule.get_loops(schedule.get_sblock(BLOCK))
            schedule.parallel(head)

    def estimate_s(
        self, workload: Workload, hardware: HardwareModel, threads: int, values: Decisions
    ) -> float:
        """Estimated seconds of one call, see `cost`."""
        return cached_attention_seconds(extents_of(workload, hardware), hardware, threads, _splits(values))


def _splits(values: Decisions) -> int:
    """Parts of the positions; one thread has no such decision."""
    return values.get("splits", 1)


RULE = CachedAttention()
