"""Estimated time of reductions along columns on a GPU, which memory bounds where there are blocks enough."""

from __future__ import annotations

from host.schedules.cuda.columnwise.program import ColumnTiles
from host.schedules.cuda.multiprocessor import (
    COPY_INSTRUCTIONS,
    LOADS_IN_FLIGHT,
    STREAM_REGISTERS,
    Work,
    bandwidth,
    occupancy,
    waves,
)
from host.schedules.workload import Workload
from targets import GpuModel

# Cycles of a load from shared memory with what is done with it, and of a meeting of a block.
_SHARED_CYCLES, _MEETING_CYCLES = 30.0, 40.0


def cuda_columnwise_seconds(workload: Workload, tiles: ColumnTiles, gpu: GpuModel) -> float:
    """Estimated seconds of one call of a program of the `cuda_columnwise` rule."""
    columns = tiles.columns
    before = workload.stages[: workload.anchor + 1]
    arithmetic = sum(max(1.0, stage.flops_per_point) for stage in before)
    scheduled = max(1.0, tiles.warps / gpu.partitions)
    turn = (COPY_INSTRUCTIONS + arithmetic * tiles.vector) * scheduled
    ended = -(-tiles.vector // tiles.slices) * tiles.slices
    ending = _MEETING_CYCLES + ended * _SHARED_CYCLES
    waiting = tiles.turns / LOADS_IN_FLIGHT * gpu.level("L2").latency_s * gpu.frequency_hz
    busy = tiles.turns * turn + ended
    alone = max(tiles.turns * turn, waiting) + gpu.level("DRAM").latency_s * gpu.frequency_hz + ending
    threads = tiles.warps * gpu.warp
    placed = occupancy(gpu, tiles.grid, threads, STREAM_REGISTERS, tiles.shared_bytes)
    compute = waves(gpu, placed, Work(busy, alone)) / gpu.frequency_hz
    moved = 0.0
    for stage in workload.stages:
        for access in (*stage.reads, stage.write):
            if access.argument:
                moved += min(access.elements, stage.points) * access.element_bytes
    resident = min(tiles.grid, placed.per_multiprocessor * gpu.multiprocessors) * threads
    element = min(access.element_bytes for access in columns.stage.reads)
    under_way = resident * LOADS_IN_FLIGHT * element * tiles.vector
    seconds = max(compute, moved / bandwidth(gpu, under_way))
    return seconds + gpu.launch_s + (_joining(tiles, gpu) if tiles.splits > 1 else 0.0)


def _joining(tiles: ColumnTiles, gpu: GpuModel) -> float:
    """Seconds of the second kernel: a thread loads a part from every split."""
    loaded = tiles.splits / LOADS_IN_FLIGHT * gpu.level("L2").latency_s
    return gpu.next_launch_s + max(loaded, 2 * tiles.parts_bytes / gpu.level("L2").bandwidth_bytes_per_s)
