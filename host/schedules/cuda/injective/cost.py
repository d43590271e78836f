"""Estimated time of elementwise chains on a GPU, which memory bounds."""

from __future__ import annotations

import math
from functools import lru_cache

from host.schedules.api import Decisions
from host.schedules.cuda.injective.tiles import Tiles
from host.schedules.cuda.injective.transposition import transposition_of
from host.schedules.cuda.multiprocessor import (
    COPY_INSTRUCTIONS,
    LOADS_IN_FLIGHT,
    STREAM_REGISTERS,
    Work,
    bandwidth,
    gpu_of,
    occupancy,
    start_cycles,
    waves,
)
from host.schedules.workload import Access, Workload
from targets import GpuModel, HardwareModel

# Instructions of an element that passes through shared memory: its store, its load and the address of that.
_TURNING_INSTRUCTIONS = 4.0
# Cycles of the barrier between both parts.
_MEETING_CYCLES = 40.0


def cuda_injective_seconds(workload: Workload, hardware: HardwareModel, values: Decisions) -> float:
    """Estimated seconds of one call of a program of the `cuda_injective` rule without tiles."""
    gpu = gpu_of(hardware)
    moved, points = _flat_bytes(workload, gpu.transaction_bytes), _points(workload)
    wanted = _flat_bytes(workload, 0)
    grid = math.ceil(points / values["vector"] / values["threads"])
    placed = occupancy(gpu, grid, values["threads"], STREAM_REGISTERS, 0)
    resident = min(grid, placed.per_multiprocessor * gpu.multiprocessors) * values["threads"]
    instructions = points * (COPY_INSTRUCTIONS / values["vector"] + 1.0) + _arithmetic(workload)
    rate = gpu.partitions * gpu.warp * gpu.multiprocessors * gpu.frequency_hz
    # A load that waits brings a whole transaction, so that what lies apart waits no longer than neighbours.
    waited = wanted / bandwidth(gpu, resident * values["vector"] * 4.0)
    streamed = moved / gpu.level("DRAM").bandwidth_bytes_per_s
    blocks, warps = (cycles / gpu.frequency_hz for cycles in start_cycles(gpu, grid, values["threads"]))
    return max(streamed, waited, instructions / rate, blocks) + warps + gpu.launch_s


def tiles_seconds(workload: Workload, hardware: HardwareModel, tiles: Tiles) -> float:
    """Estimated seconds of one call of a program of the `cuda_injective` rule that turns tiles."""
    gpu = gpu_of(hardware)
    elements = tiles.rows * tiles.columns
    each = _TURNING_INSTRUCTIONS * len(tiles.transposition.turned) + _arithmetic(workload) / _points(workload)
    instructions = COPY_INSTRUCTIONS * (tiles.loading_turns + tiles.storing_turns)
    instructions += elements / tiles.threads * each
    scheduled = max(1.0, tiles.threads / gpu.warp / gpu.partitions)
    busy = instructions * scheduled
    latency = gpu.level("DRAM").latency_s * gpu.frequency_hz
    waiting = math.ceil(tiles.loading_turns / LOADS_IN_FLIGHT) * latency
    placed = occupancy(gpu, tiles.grid, tiles.threads, STREAM_REGISTERS, tiles.shared_bytes)
    compute = waves(gpu, placed, Work(busy, busy + waiting + _MEETING_CYCLES)) / gpu.frequency_hz
    resident = min(tiles.grid, placed.per_multiprocessor * gpu.multiprocessors) * tiles.threads
    size = min(access.element_bytes for access in tiles.transposition.turned)
    under_way = resident * min(LOADS_IN_FLIGHT, tiles.loading_turns) * tiles.fetch * size
    return max(compute, _tiled_bytes(tiles, gpu) / bandwidth(gpu, under_way)) + gpu.launch_s


def _points(workload: Workload) -> float:
    return max(float(stage.points) for stage in workload.stages)


def _arithmetic(workload: Workload) -> float:
    return sum(stage.points * max(1.0, stage.flops_per_point) for stage in workload.stages)


@lru_cache(maxsize=256)
def _flat_bytes(workload: Workload, transaction: int) -> float:
    """Bytes of all accesses in the output's order: an element that lies apart takes a whole transaction.

    Args:
        workload: a chain.
        transaction: bytes of one; 0 for those of the elements alone.
    """
    transposition = transposition_of(workload)
    if transposition is not None:
        # Stages in front of the transposition are computed in the order of the output too.
        stage, last = transposition.stage, transposition.columns[0]
        accesses = (*transposition.accesses, stage.write)
        return sum(_apart(access, last, stage.points, transaction) for access in accesses)
    return sum(
        _apart(access, len(stage.axes) - 1, stage.points, transaction)
        for stage in workload.stages
        for access in (*stage.reads, stage.write)
        if access.argument
    )


def _apart(access: Access, axis: int, points: int, transaction: int) -> float:
    """Bytes that an access takes where neighbouring threads are neighbours along an axis."""
    step = abs(access.strides[axis]) if access.strides else 0
    size = float(min(access.elements, points) * access.element_bytes)
    return size * max(1.0, min(float(step), transaction / access.element_bytes))


def _tiled_bytes(tiles: Tiles, gpu: GpuModel) -> float:
    """Bytes of all accesses: runs along rows of what is turned, along columns of the others."""
    transposition = tiles.transposition
    stage, moved = transposition.stage, 0.0
    down, along = (transposition.rows, tiles.rows), (transposition.columns, tiles.columns)
    for access in (*transposition.accesses, stage.write):
        if access in transposition.turned:
            moved += _in_runs(access, tiles, (down, along), gpu)
        elif access.strides[transposition.columns[0]] in (0, 1):
            moved += _in_runs(access, tiles, (along, down), gpu)
        else:
            moved += _apart(access, transposition.columns[0], stage.points, gpu.transaction_bytes)
    return moved


# Axes of a group and the side of a tile along them: those that are neighbours first.
_Sides = tuple[tuple[tuple[int, ...], int], tuple[tuple[int, ...], int]]


def _in_runs(access: Access, tiles: Tiles, sides: _Sides, gpu: GpuModel) -> float:
    """Bytes of whole transactions where a tile has runs of neighbours, which may follow one another."""
    (axes, side), (others, other) = sides
    transposition = tiles.transposition
    size = transposition.size(axes)
    run = min(side, size)
    if side >= size and access.offset(others[0], 1) == size:
        run *= min(other, transposition.extents(others)[0])
    elements = min(access.elements, transposition.stage.points)
    each = -(-run * access.element_bytes // gpu.transaction_bytes) * gpu.transaction_bytes
    return max(elements / run, 1.0) * each
