"""Estimated time of reductions along rows on a GPU, which memory bounds."""

from __future__ import annotations

import math

from host.schedules.api import Decisions
from host.schedules.cuda.multiprocessor import (
    COPY_INSTRUCTIONS,
    STREAM_REGISTERS,
    Work,
    bandwidth,
    gpu_of,
    occupancy,
    waves,
)
from host.schedules.cuda.rowwise.rows import row_count, row_passes, row_shared_bytes
from host.schedules.workload import Workload
from targets import HardwareModel

# Cycles of one exchange between the registers of a warp, and of a meeting of a block.
_EXCHANGE_CYCLES, _MEETING_CYCLES = 25.0, 40.0


def cuda_rowwise_seconds(workload: Workload, hardware: HardwareModel, values: Decisions) -> float:
    """Estimated seconds of one call of a program of the `cuda_rowwise` rule."""
    gpu = gpu_of(hardware)
    rows, threads = row_count(workload), values["threads"]
    block = threads * values["rows"]
    busy = alone = moved = 0.0
    scheduled = max(1.0, block / gpu.warp / gpu.partitions)
    again = 1.0 + values["inline"] * sum(stage.expensive for stage in workload.stages)
    for stage in row_passes(workload, values):
        turns = math.ceil(stage.points / rows / threads)
        instructions = turns * (COPY_INSTRUCTIONS + again * max(1.0, stage.flops_per_point))
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
    placed = occupancy(gpu, -(-rows // values["rows"]), block, STREAM_REGISTERS, shared)
    compute = waves(gpu, placed, Work(busy, alone)) / gpu.frequency_hz
    resident = min(placed.grid, placed.per_multiprocessor * gpu.multiprocessors) * block
    return max(compute, moved / bandwidth(gpu, resident * 16.0)) + gpu.launch_s
