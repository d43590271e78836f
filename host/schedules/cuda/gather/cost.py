"""Estimated time of elements at computed places on a GPU, which memory bounds where vectors are long."""

from __future__ import annotations

import math

from host.schedules.api import Decisions
from host.schedules.cuda.multiprocessor import (
    COPY_INSTRUCTIONS,
    STREAM_REGISTERS,
    Work,
    bandwidth,
    occupancy,
    waves,
)
from host.schedules.workload import Workload
from targets import GpuModel

# Instructions of an element of a read: its conversion, and what becomes of it.
_READ_INSTRUCTIONS = 3.0
# Loads of a thread that are on their way at once, and bytes that the first-level cache gives in a cycle.
_AT_ONCE, _CACHE_BYTES = 8.0, 64.0


def cuda_gather_seconds(workload: Workload, gpu: GpuModel, values: Decisions) -> float:
    """Estimated seconds of one call of a program of the `cuda_gather` rule."""
    last = workload.stages[-1]
    vector, threads = values["vector"], values["threads"]
    reads = [(stage, access) for stage in workload.stages for access in stage.reads if access.argument]
    count = sum(stage.points for stage, _ in reads) / last.points
    grid = math.ceil(last.points / vector / threads)
    placed = occupancy(gpu, grid, threads, STREAM_REGISTERS, 0)
    # Places are computed once for all neighbours: so is most of a stage's arithmetic that has such reads.
    placing = sum(
        stage.points * stage.flops_per_point
        for stage in workload.stages
        if any(access.data_dependent for access in stage.reads)
    )
    others = sum(stage.points * max(1.0, stage.flops_per_point) for stage in workload.stages) - placing
    each = (placing + last.points * COPY_INSTRUCTIONS * (count + 1)) / last.points
    each += vector * (others / last.points + _READ_INSTRUCTIONS * count)
    warps = -(-threads // gpu.warp)
    size = max((access.element_bytes for _, access in reads), default=last.write.element_bytes)
    busy = max(each * max(1.0, warps / gpu.partitions), count * vector * size * threads / _CACHE_BYTES)
    latency = gpu.level("DRAM").latency_s * gpu.frequency_hz
    compute = waves(gpu, placed, Work(busy, busy + latency)) / gpu.frequency_hz
    moved = last.write.elements * last.write.element_bytes + _read_bytes(workload)
    resident = min(grid, placed.per_multiprocessor * gpu.multiprocessors) * threads
    coming = resident * min(_AT_ONCE, count) * vector * size
    return max(compute, moved / bandwidth(gpu, coming)) + gpu.launch_s


def _read_bytes(workload: Workload) -> float:
    """Bytes of the arguments, each read once where there are as many reads of it."""
    wanted: dict[str, tuple[int, float]] = {}
    for stage in workload.stages:
        for access in stage.reads:
            if access.argument:
                _, before = wanted.get(access.buffer, (0, 0.0))
                whole = access.elements * access.element_bytes
                wanted[access.buffer] = (whole, before + stage.points * access.element_bytes)
    return sum(min(float(whole), read) for whole, read in wanted.values())
