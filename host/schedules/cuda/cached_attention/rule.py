"""Attention over a cache on a GPU: rows of a block, its warps, and blocks that share the positions."""

from __future__ import annotations

from collections.abc import Mapping

from host.schedules.api import GPU, DecisionKind, Decisions, Level, Rule, Sampler, WordClass
from host.schedules.cached_attention import extents_of, is_cached_attention
from host.schedules.cuda.cached_attention.cost import cached_attention_seconds
from host.schedules.cuda.cached_attention.program import AttentionTiles, put_tiles
from host.schedules.cuda.multiprocessor import gpu_of, register_limit
from host.schedules.workload import Workload
from targets import HardwareModel

_MOST_ROWS = 8
_WARPS, _SPLITS = (1, 2, 4, 8), (1, 2, 4, 8, 16, 32)


class CudaCachedAttention(Rule):
    """Warps take chunks of positions in turn, each for several rows of one head of keys."""

    name = "cuda_cached_attention"
    processor = GPU
    version = 1
    priority = 7
    traced = False
    measurable = False
    decisions = (
        DecisionKind("rows", Level.REGISTER, WordClass.TILE),
        DecisionKind("warps", Level.BLOCK, WordClass.PARALLEL),
        DecisionKind("splits", Level.BLOCK, WordClass.PARALLEL),
    )

    def matches(self, workload: Workload, hardware: HardwareModel) -> bool:
        """The function of an attention over a cache."""
        return hardware.gpu is not None and is_cached_attention(workload)

    def choices(self, workload: Workload, hardware: HardwareModel) -> Mapping[str, tuple[int, ...]]:
        """Rows that divide those of a head of keys, warps, and no more splits than chunks of positions."""
        shape = extents_of(workload, hardware)
        rows = shape.rows * shape.group
        return {
            "rows": tuple(n for n in range(1, min(_MOST_ROWS, rows) + 1) if rows % n == 0),
            "warps": _WARPS,
            "splits": tuple(n for n in _SPLITS if n == 1 or n * 32 <= shape.capacity),
        }

    def legal(self, workload: Workload, hardware: HardwareModel, values: Decisions) -> bool:
        """Registers and shared memory of a block are within the GPU's."""
        shape, tiles, gpu = extents_of(workload, hardware), tiles_of(values), gpu_of(hardware)
        if tiles.registers(shape.size) > register_limit(gpu, tiles.warps * gpu.warp):
            return False
        return tiles.shared_bytes(shape.size) <= gpu.shared_per_block

    def apply(self, sampler: Sampler, workload: Workload, hardware: HardwareModel, threads: int) -> None:
        """Puts the program in the place of the function's body."""
        schedule = sampler.schedule
        for kind in self.decisions:
            sampler.sample(kind.name)
        put_tiles(schedule, extents_of(workload, hardware), tiles_of(sampler.values))

    def estimate_s(
        self, workload: Workload, hardware: HardwareModel, threads: int, values: Decisions
    ) -> float:
        """Estimated seconds of one call, see `cost`."""
        return cached_attention_seconds(extents_of(workload, hardware), tiles_of(values), gpu_of(hardware))


def tiles_of(values: Decisions) -> AttentionTiles:
    """The tiles of a program."""
    return AttentionTiles(values["rows"], values["warps"], values["splits"])


RULE = CudaCachedAttention()
