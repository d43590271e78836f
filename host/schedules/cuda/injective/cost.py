"""Estimated time of elementwise chains on a GPU, which memory bounds."""

from __future__ import annotations

import math

from host.schedules.api import Decisions
from host.schedules.cuda.multiprocessor import (
    COPY_INSTRUCTIONS,
    STREAM_REGISTERS,
    bandwidth,
    gpu_of,
    occupancy,
    start_cycles,
)
from host.schedules.workload import Workload
from targets import HardwareModel


def cuda_injective_seconds(workload: Workload, hardware: HardwareModel, values: Decisions) -> float:
    """Estimated seconds of one call of a program of the `cuda_injective` rule."""
    gpu = gpu_of(hardware)
    moved = points = arithmetic = 0.0
    for stage in workload.stages:
        points = max(points, float(stage.points))
        arithmetic += stage.points * max(1.0, stage.flops_per_point)
        for access in (*stage.reads, stage.write):
            if access.argument:
                size = float(min(access.elements, stage.points) * access.element_bytes)
                step = abs(access.strides[-1]) if access.strides else 0
                moved += size * min(max(1, step), gpu.transaction_bytes / access.element_bytes)
    grid = math.ceil(points / values["vector"] / values["threads"])
    placed = occupancy(gpu, grid, values["threads"], STREAM_REGISTERS, 0)
    resident = min(grid, placed.per_multiprocessor * gpu.multiprocessors) * values["threads"]
    instructions = points * (COPY_INSTRUCTIONS / values["vector"] + 1.0) + arithmetic
    rate = gpu.partitions * gpu.warp * gpu.multiprocessors * gpu.frequency_hz
    loaded = bandwidth(gpu, resident * values["vector"] * 4.0)
    blocks, warps = (cycles / gpu.frequency_hz for cycles in start_cycles(gpu, grid, values["threads"]))
    return max(moved / loaded, instructions / rate, blocks) + warps + gpu.launch_s
