"""Estimated time of stages on a GPU that memory bounds: elementwise chains and reductions along rows."""

from __future__ import annotations

import math

from host.schedules.cuda.rowwise.rule import row_count, row_passes, row_shared_bytes
from host.schedules.cuda.tiled.cost import Work, residence, waves
from host.schedules.cuda.tiled.roles import gpu_of
from host.schedules.design import Decisions, DesignSpace
from targets import GpuModel

# Instructions of a thread around one element or vector: addresses, the load and the store.
_COPY_INSTRUCTIONS = 6.0
# Cycles of one exchange between the registers of a warp, and of a meeting of a block.
_EXCHANGE_CYCLES, _MEETING_CYCLES = 25.0, 40.0
# Registers of a thread of such code.
_REGISTERS = 32


def cuda_injective_seconds(space: DesignSpace, values: Decisions) -> float:
    """Estimated seconds of one call of a program of the `cuda_injective` rule."""
    gpu = gpu_of(space.hardware)
    moved = points = arithmetic = 0.0
    for stage in space.workload.stages:
        points = max(points, float(stage.points))
        arithmetic += stage.points * max(1.0, stage.flops_per_point)
        for access in (*stage.reads, stage.write):
            if access.argument:
                size = float(min(access.elements, stage.points) * access.element_bytes)
                step = abs(access.strides[-1]) if access.strides else 0
                moved += size * min(max(1, step), gpu.transaction_bytes / access.element_bytes)
    grid = math.ceil(points / values["vector"] / values["threads"])
    lies = residence(gpu, grid, values["threads"], _REGISTERS, 0)
    resident = min(grid, lies.per_multiprocessor * gpu.multiprocessors) * values["threads"]
    instructions = points * (_COPY_INSTRUCTIONS / values["vector"] + 1.0) + arithmetic
    rate = gpu.partitions * gpu.warp * gpu.multiprocessors * gpu.frequency_hz
    bandwidth = _bandwidth(gpu, resident * values["vector"] * 4.0)
    return max(moved / bandwidth, instructions / rate) + gpu.launch_s


def cuda_rowwise_seconds(space: DesignSpace, values: Decisions) -> float:
    """Estimated seconds of one call of a program of the `cuda_rowwise` rule."""
    gpu, workload = gpu_of(space.hardware), space.workload
    rows, threads = row_count(workload), values["threads"]
    block = threads * values["rows"]
    busy = alone = moved = 0.0
    scheduled = max(1.0, block / gpu.warp / gpu.partitions)
    again = 1.0 + values["inline"] * sum(stage.expensive for stage in workload.stages)
    for stage in row_passes(workload, values):
        turns = math.ceil(stage.points / rows / threads)
        instructions = turns * (_COPY_INSTRUCTIONS + again * max(1.0, stage.flops_per_point))
        exchanges = math.log2(threads) if stage.reduction else 0.0
        meetings = 2.0 if stage.reduction and threads > gpu.warp else 1.0
        busy += (instructions + exchanges) * scheduled
        # Loads of one thread do not depend on each other: about four are on their way at once.
        waiting = turns / 4.0 * gpu.level("L2").latency_s * gpu.frequency_hz
        alone += max(instructions * scheduled, waiting)
        alone += exchanges * _EXCHANGE_CYCLES + meetings * _MEETING_CYCLES
    for stage in workload.stages:
        moved += sum(a.elements * a.element_bytes for a in (*stage.reads, stage.write) if a.argument)
    # A few threads on a row read less than a transaction of it at once.
    moved *= max(1.0, gpu.transaction_bytes / 4.0 / threads)
    shared = row_shared_bytes(workload, values)
    lies = residence(gpu, -(-rows // values["rows"]), block, _REGISTERS, shared)
    compute = waves(gpu, lies, Work(busy, alone)) / gpu.frequency_hz
    resident = min(lies.grid, lies.per_multiprocessor * gpu.multiprocessors) * block
    return max(compute, moved / _bandwidth(gpu, resident * 16.0)) + gpu.launch_s


def _bandwidth(gpu: GpuModel, bytes_on_their_way: float) -> float:
    """Bytes a second from DRAM: its own, or what the loads that wait at once allow."""
    dram = gpu.level("DRAM")
    return min(dram.bandwidth_bytes_per_s, bytes_on_their_way / dram.latency_s)
