"""Attention on tensor cores: rows and columns of a warp's tile, warps of a block, and stages on their way."""

from __future__ import annotations

import json
from collections.abc import Mapping

from host.lowering.attention.matrices import CAUSAL, MASKED, MIXED, OPTIONS, SCORES
from host.schedules.api import GPU, DecisionKind, Decisions, Level, Rule, Sampler, WordClass
from host.schedules.cuda.attention.cost import attention_seconds
from host.schedules.cuda.attention.program import Options, Program
from host.schedules.cuda.attention.shape import AttentionShape, attention_of
from host.schedules.cuda.attention.tiles import Tiling, tiling_of
from host.schedules.cuda.common import sizes_up_to
from host.schedules.cuda.multiprocessor import gpu_of, register_limit
from host.schedules.workload import Workload
from targets import HardwareModel

_ROWS, _COLUMNS = (16, 32), (16, 32, 64, 128)
_WARPS, _SLICES, _STAGES = (1, 2, 4, 8), (1, 2, 4), (1, 2, 3, 4)
_MOST_WARPS = 16
# Copies of a thread for a stage, which are written out one after the other.
_MOST_COPIES = 48


class CudaAttention(Rule):
    """Tiles of queries and scores in the registers of warps, keys and values in shared memory."""

    name = "cuda_attention"
    processor = GPU
    version = 1
    priority = 6
    traced = False
    # Columns, slices and stages divide the keys; rows and warps the queries.
    coupled = True
    decisions = (
        DecisionKind("rows", Level.REGISTER, WordClass.TILE),
        DecisionKind("columns", Level.REGISTER, WordClass.TILE),
        DecisionKind("warps", Level.BLOCK, WordClass.PARALLEL),
        DecisionKind("slices", Level.BLOCK, WordClass.PARALLEL, starts_wide=True),
        DecisionKind("stages", Level.BLOCK, WordClass.TILE),
    )

    def matches(self, workload: Workload, hardware: HardwareModel) -> bool:
        """The function of an attention, on a GPU that multiplies matrices of halves."""
        gpu = hardware.gpu
        return gpu is not None and gpu.matrix_fp16_per_cycle > 0 and attention_of(workload) is not None

    def choices(self, workload: Workload, hardware: HardwareModel) -> Mapping[str, tuple[int, ...]]:
        """Tiles that rows and columns do not leave half empty, and no more stages than turns."""
        shape = _shape(workload)
        columns = sizes_up_to(_COLUMNS, shape.columns)
        turns = -(-shape.columns // columns[0])
        return {
            "rows": sizes_up_to(_ROWS, shape.rows),
            "columns": columns,
            "warps": tuple(n for n in _WARPS if n == 1 or (n - 1) * _ROWS[0] < shape.rows),
            "slices": tuple(n for n in _SLICES if n <= turns),
            "stages": tuple(n for n in _STAGES if n <= turns),
        }

    def legal(self, workload: Workload, hardware: HardwareModel, values: Decisions) -> bool:
        """Threads, registers and shared memory are within the GPU's; no tile is mostly empty."""
        shape, gpu = _shape(workload), gpu_of(hardware)
        tiling = tiling_of(shape, values)
        if tiling.warps * tiling.slices > _MOST_WARPS or tiling.stages > tiling.turns:
            return False
        if tiling.warps > 1 and tiling.block_rows - tiling.rows >= shape.rows:
            return False
        if tiling.slices > 1 and tiling.block_columns - tiling.columns >= shape.columns:
            return False
        if tiling.rounds(tiling.keys) + tiling.rounds(tiling.values) > _MOST_COPIES:
            return False
        if tiling.registers > register_limit(gpu, tiling.threads):
            return False
        return tiling.shared_bytes <= gpu.shared_opt_in

    def apply(self, sampler: Sampler, workload: Workload, hardware: HardwareModel, threads: int) -> None:
        """Puts the nest of blocks and warps in the place of the function's body."""
        schedule, shape = sampler.schedule, _shape(workload)
        for kind in self.decisions:
            sampler.sample(kind.name)
        blocks = {stage.name: schedule.get(schedule.get_sblock(stage.name)) for stage in workload.stages}
        scores, masked = blocks[SCORES], blocks[CAUSAL if shape.causal else MASKED]
        stated = Options(**json.loads(scores.annotations[OPTIONS]))
        sources = {
            region.source.name: region.source
            for block in (scores, masked, blocks[MIXED])
            for region in block.reads
        }
        last = blocks[workload.stages[-1].name]
        buffers = {"output": last.writes[0].source}
        for name in ("query", "key", "value", "mask"):
            operand = getattr(shape, name)
            if operand is not None:
                buffers[name] = sources[operand.access.buffer]
        tiling = tiling_of(shape, sampler.values)
        # More than a block may declare is asked for at launch.
        scope = "shared" if tiling.shared_bytes <= gpu_of(hardware).shared_per_block else "shared.dyn"
        Program(tiling, stated, buffers, scope).put_into(schedule)

    def estimate_s(
        self, workload: Workload, hardware: HardwareModel, threads: int, values: Decisions
    ) -> float:
        """Estimated seconds of one call, see `cost`."""
        return attention_seconds(tiles_of(workload, values), gpu_of(hardware))


def tiles_of(workload: Workload, values: Decisions) -> Tiling:
    """The tiles of a program."""
    return tiling_of(_shape(workload), values)


def _shape(workload: Workload) -> AttentionShape:
    shape = attention_of(workload)
    assert shape is not None, "the rule matched before"
    return shape


RULE = CudaAttention()
