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
from host.schedules.workload import Stage, Workload
from targets import GpuModel

# Instructions of a thread for the place of a load, and at its start; of an element for each load (its
# conversion), and for each mix of two.
_PLACE_INSTRUCTIONS, _START_INSTRUCTIONS = 4.0, 20.0
_CONVERSION, _MIX = 1.0, 2.0
# Loads of a thread that are on their way at once, and bytes that the first-level cache gives in a cycle.
_AT_ONCE, _CACHE_BYTES = 8.0, 64.0


def cuda_gather_seconds(workload: Workload, gpu: GpuModel, values: Decisions) -> float:
    """Estimated seconds of one call of a program of the `cuda_gather` rule."""
    last = workload.stages[-1]
    vector, threads = values["vector"], values["threads"]
    loads = sum(_loads(stage) * stage.points for stage in workload.stages) / last.points
    grid = math.ceil(last.points / vector / threads)
    placed = occupancy(gpu, grid, threads, STREAM_REGISTERS, 0)
    warps = -(-threads // gpu.warp)
    size = last.write.element_bytes
    issue = _instructions(workload, loads, vector) * max(1.0, warps / gpu.partitions)
    busy = max(issue, loads * vector * size * threads / _CACHE_BYTES)
    latency = gpu.level("DRAM").latency_s * gpu.frequency_hz
    compute = waves(gpu, placed, Work(busy, busy + latency)) / gpu.frequency_hz
    moved = last.write.elements * last.write.element_bytes + _read_bytes(workload)
    resident = min(grid, placed.per_multiprocessor * gpu.multiprocessors) * threads
    coming = resident * min(_AT_ONCE, max(1.0, loads)) * vector * size
    return max(compute, moved / bandwidth(gpu, coming)) + gpu.launch_s


def _loads(stage: Stage) -> int:
    """Different elements at computed places that a stage reads for each of its own.

    A mix of two neighbours, first + (second - first) * part, names the first one twice: three reads along one
    axis are of two elements, nine along two axes of four.
    """
    count = sum(access.data_dependent for access in stage.reads)
    return 2 ** round(math.log(count, 3)) if count and stage.flops_per_point else count


def _instructions(workload: Workload, loads: float, vector: int) -> float:
    """Instructions of a thread: places are computed once for all of its neighbours."""
    last = workload.stages[-1]
    beside = [access for stage in workload.stages for access in stage.reads if access.argument]
    straight = sum(not access.data_dependent for access in beside)
    others = sum(
        stage.points * stage.flops_per_point
        for stage in workload.stages
        if not any(access.data_dependent for access in stage.reads)
    )
    mixes = max(0.0, loads - 1.0) * _MIX
    own = _START_INSTRUCTIONS + COPY_INSTRUCTIONS * (1 + straight)
    own += loads * (COPY_INSTRUCTIONS + _PLACE_INSTRUCTIONS)
    return own + vector * (loads * _CONVERSION + mixes + others / last.points + 1.0)


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
