"""Estimated time of reductions along rows on a GPU, which memory bounds."""

from __future__ import annotations

import math

from host.schedules.api import Decisions
from host.schedules.cuda.multiprocessor import (
    COPY_INSTRUCTIONS,
    LOADS_IN_FLIGHT,
    STREAM_REGISTERS,
    Work,
    bandwidth,
    gpu_of,
    occupancy,
    waves,
)
from host.schedules.cuda.rowwise.rows import row_count, row_passes, row_shared_bytes
from host.schedules.cuda.rowwise.vector_rows import vector_shared_bytes
from host.schedules.workload import Stage, Workload
from targets import GpuModel, HardwareModel

# Cycles of one exchange between the registers of a warp, and of a meeting of a block.
_EXCHANGE_CYCLES, _MEETING_CYCLES = 25.0, 40.0
# Cycles until a number arrives from shared memory, and of each that is added up there.
_SHARED_CYCLES, _SUM_CYCLES = 30.0, 4.0


def cuda_rowwise_seconds(workload: Workload, hardware: HardwareModel, values: Decisions) -> float:
    """Estimated seconds of one call of a program of the `cuda_rowwise` rule whose blocks have whole rows."""
    gpu = gpu_of(hardware)
    rows, threads, vector = row_count(workload), values["threads"], values.get("vector", 1)
    block = threads * values["rows"]
    busy = alone = 0.0
    scheduled = max(1.0, block / gpu.warp / gpu.partitions)
    again = 1.0 + values["inline"] * sum(stage.expensive for stage in workload.stages)
    for stage in row_passes(workload, values):
        turns = math.ceil(stage.points / rows / threads / vector)
        instructions = turns * (COPY_INSTRUCTIONS + vector * again * max(1.0, stage.flops_per_point))
        exchanges, joined = _joining(stage, threads, vector, gpu)
        busy += (instructions + exchanges) * scheduled
        # Loads of one thread do not depend on each other: about four are on their way at once.
        waiting = turns / LOADS_IN_FLIGHT * gpu.level("L2").latency_s * gpu.frequency_hz
        alone += max(instructions * scheduled, waiting)
        alone += exchanges * _EXCHANGE_CYCLES + joined
    together = 4.0 if vector == 1 else float(max(4, vector * _least_bytes(workload)))
    shared = row_shared_bytes(workload, values) if vector == 1 else vector_shared_bytes(workload, values)
    placed = occupancy(gpu, -(-rows // values["rows"]), block, STREAM_REGISTERS, shared)
    compute = waves(gpu, placed, Work(busy, alone)) / gpu.frequency_hz
    # Bytes on their way for each thread: of single elements, loads of four turns.
    resident = min(placed.grid, placed.per_multiprocessor * gpu.multiprocessors) * block
    moved = _moved(workload)
    # A few threads on a row read less than a transaction of it at once.
    moved *= max(1.0, gpu.transaction_bytes / together / threads)
    return max(compute, moved / bandwidth(gpu, resident * max(16.0, together))) + gpu.launch_s


def _joining(stage: Stage, threads: int, vector: int, gpu: GpuModel) -> tuple[float, float]:
    """Exchanges between lanes behind a pass, and the cycles in which a block meets."""
    if vector == 1:
        meetings = 2.0 if stage.reduction and threads > gpu.warp else 1.0
        return math.log2(threads) if stage.reduction else 0.0, meetings * _MEETING_CYCLES
    if not stage.reduction:
        return 0.0, 0.0
    warps = threads // gpu.warp
    joined = _MEETING_CYCLES + _SHARED_CYCLES + warps * _SUM_CYCLES if warps > 1 else 0.0
    return math.log2(min(threads, gpu.warp)), joined


def _moved(workload: Workload) -> float:
    """Bytes of arguments, as often as stages read them."""
    accesses = (access for stage in workload.stages for access in (*stage.reads, stage.write))
    return float(sum(access.elements * access.element_bytes for access in accesses if access.argument))


def _least_bytes(workload: Workload) -> int:
    """Bytes of an element of the narrowest argument that is read."""
    reads = (access for stage in workload.stages for access in stage.reads if access.argument)
    return min(access.element_bytes for access in reads)
