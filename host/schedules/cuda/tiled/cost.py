"""Estimated time of a program on a GPU.

Roller's traffic (OSDI'22), one level of memory after the other: from DRAM to L2, from there to the shared
memory of the multiprocessors, from there to registers; transfers count in whole transactions, accesses to
shared memory in passes over its banks. A multiprocessor works on as many blocks as registers, threads and
shared memory let it hold; what one block waits for, others hide. Blocks run in waves; the last one may leave
multiprocessors idle. The terms for waiting are ours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from host.schedules.api import Decisions
from host.schedules.cuda.multiprocessor import COPY_INSTRUCTIONS, Occupancy, Work, gpu_of, occupancy, waves
from host.schedules.cuda.tiled.copies import loaded, passes, shared_bytes
from host.schedules.cuda.tiled.roles import (
    Block,
    CudaRoles,
    block_of,
    cuda_roles,
    fetch_width,
    registers,
    staged_tile,
)
from host.schedules.workload import Access, Stage, Workload
from targets import GpuModel, HardwareModel

# Instructions around one written-out group of reduction steps: counter, branch, addresses.
_LOOP_INSTRUCTIONS = 4.0
# Cycles of a dependent multiply-add, and of a load from shared memory.
_FMA_LATENCY, _SHARED_LATENCY, _BARRIER_CYCLES = 4.0, 25.0, 20.0
# Share of the smaller terms that does not hide behind the largest.
_EXPOSED = 0.1
# Part of L2 that repeated reads can count on.
_L2_SHARE = 0.75


def cuda_tiled_seconds(workload: Workload, hardware: HardwareModel, values: Decisions) -> float:
    """Estimated seconds of one call of a program of the `cuda_tiled` rule."""
    anchor, gpu = workload.anchor_stage, gpu_of(hardware)
    roles = cuda_roles(anchor)
    assert roles is not None
    block = block_of(values)
    shared = shared_bytes(anchor, roles, values)
    placed = occupancy(gpu, _grid(anchor, roles, block), block.threads, registers(anchor, values), shared)
    work = _block_cycles(anchor, roles, gpu, values, block)
    compute = waves(gpu, placed, work) / gpu.frequency_hz
    l2 = placed.grid * _block_bytes(anchor, roles, gpu, values, block)
    l2_seconds = l2 / gpu.level("L2").bandwidth_bytes_per_s
    dram = _dram_bytes(anchor, roles, gpu, block, placed)
    dram_seconds = dram / gpu.level("DRAM").bandwidth_bytes_per_s
    longest = max(compute, l2_seconds, dram_seconds)
    total = compute + l2_seconds + dram_seconds
    return longest + _EXPOSED * (total - longest) + gpu.launch_s


def _grid(anchor: Stage, roles: CudaRoles, block: Block) -> int:
    grid = math.prod(anchor.axes[axis].extent for axis in roles.outer)
    for axis, tile in ((roles.column, block.columns), (roles.row, block.rows), (roles.second, block.seconds)):
        grid *= -(-anchor.axes[axis].extent // tile) if axis is not None else 1
    return grid


def _block_cycles(anchor: Stage, roles: CudaRoles, gpu: GpuModel, values: Decisions, block: Block) -> Work:
    """Cycles of a block: issue of instructions, multiply-adds, passes over shared memory, and waiting."""
    warps = -(-block.threads // gpu.warp)
    depth = math.prod(anchor.axes[axis].extent for axis in roles.window)
    depth *= anchor.axes[roles.depth].extent
    loads, shared_passes = _operand_loads(anchor, roles, gpu, values)
    instructions = block.sums + loads + _LOOP_INSTRUCTIONS / values["steps"]
    per_scheduler = warps / gpu.partitions
    issue = instructions * max(1.0, per_scheduler)
    arithmetic = warps * gpu.warp * block.sums / gpu.fp32_per_cycle
    served = warps * shared_passes
    bound = max(issue, arithmetic, served)
    # Passes that a conflict takes hide behind other work, but not wholly.
    step = bound + _EXPOSED * (issue + arithmetic + served - bound)
    # Alone, a warp waits for its own sums and loads unless it or its neighbours have others to go on with.
    waiting = max(step, _FMA_LATENCY, (_SHARED_LATENCY + block.sums * max(1.0, per_scheduler)) / 2)
    if not values["stage"]:
        latency = gpu.level("L2").latency_s * gpu.frequency_hz / max(1, values["steps"])
        return Work(step * depth, (waiting + latency / max(1.0, per_scheduler)) * depth)
    tile = staged_tile(anchor, roles, values)
    tiles = depth / math.prod(tile.get(axis, 1) for axis in anchor.reduction)
    copied = sum(
        math.ceil(math.prod(region) / fetch_width(access, region, values["fetch"]) / block.threads)
        for access in anchor.reads
        for region in [access.region(tile)]
    )
    copying = copied * COPY_INSTRUCTIONS * max(1.0, per_scheduler)
    latency = gpu.level("L2").latency_s * gpu.frequency_hz + 2 * _BARRIER_CYCLES
    # Nothing else of the block runs while it meets; neighbours fill about half of that.
    meeting = _BARRIER_CYCLES * tiles
    return Work(step * depth + copying * tiles + meeting, waiting * depth + (copying + latency) * tiles)


def _operand_loads(anchor: Stage, roles: CudaRoles, gpu: GpuModel, values: Decisions) -> tuple[float, float]:
    """Load instructions of a thread in one reduction step, and passes of its warp over the banks."""
    loads = total = 0.0
    for access in anchor.reads:
        per_thread = 1
        for axis, names in _thread_tile(roles).items():
            if any(move.moved for move in access.moves[axis]):
                per_thread *= math.prod(values[name] for name in names)
        along_depth = values["stage"] and access.strides[roles.depth] == 1 and values["steps"] % 4 == 0
        # A vector along the reduction serves as many steps. Alignment is known of copies only.
        width = max(loaded(anchor, roles, access, values), 4 if along_depth else 1)
        count = per_thread / width
        loads += count * (1.0 if values["stage"] else 2.0)
        total += count * passes(anchor, roles, access, gpu, values, width)
    return loads, total


def _thread_tile(roles: CudaRoles) -> Mapping[int, tuple[str, ...]]:
    """The decisions that make a thread's tile, by axis."""
    tile: dict[int, tuple[str, ...]] = {roles.column: ("cols", "vx")}
    if roles.row is not None:
        tile[roles.row] = ("rows", "vy")
    if roles.second is not None:
        tile[roles.second] = ("rows2",)
    return tile


def _block_bytes(anchor: Stage, roles: CudaRoles, gpu: GpuModel, values: Decisions, block: Block) -> float:
    """Bytes between L2 and a multiprocessor for one block, in whole transactions."""
    everything = {axis: anchor.axes[axis].extent for axis in anchor.reduction}
    tile = (
        staged_tile(anchor, roles, values)
        if values["stage"]
        else {**_thread_block(anchor, roles, block), **everything}
    )
    times = math.prod(anchor.axes[axis].extent / tile.get(axis, 1) for axis in anchor.reduction)
    total = 0.0
    for access in anchor.reads:
        moved = transaction_bytes(access, access.region(tile), gpu)
        # Without a copy in shared memory, the first-level cache holds the tile only in part.
        total += moved * times * (1.0 if values["stage"] else 1.5)
    written = {**_thread_block(anchor, roles, block)}
    return total + transaction_bytes(anchor.write, anchor.write.region(written), gpu)


def _thread_block(anchor: Stage, roles: CudaRoles, block: Block) -> dict[int, int]:
    tile = {roles.column: min(block.columns, anchor.axes[roles.column].extent)}
    for axis, extent in ((roles.row, block.rows), (roles.second, block.seconds)):
        if axis is not None:
            tile[axis] = min(extent, anchor.axes[axis].extent)
    return tile


def transaction_bytes(access: Access, region: tuple[int, ...], gpu: GpuModel) -> float:
    """Bytes of whole transactions that a box of a buffer takes."""
    run = 1
    position = len(region)
    while position > 0:
        position -= 1
        run *= min(region[position], access.shape[position])
        if region[position] < access.shape[position]:
            break
    elements = math.prod(min(extent, whole) for extent, whole in zip(region, access.shape, strict=True))
    each = -(-run * access.element_bytes // gpu.transaction_bytes) * gpu.transaction_bytes
    return elements / run * each


def _dram_bytes(anchor: Stage, roles: CudaRoles, gpu: GpuModel, block: Block, placed: Occupancy) -> float:
    """Bytes from DRAM: each buffer once, and again for every sweep of blocks where L2 does not hold it.

    Blocks along the columns follow each other, so an operand that the columns move is swept once for every
    row of blocks that does not run at the same time.
    """
    size = [float(access.elements * access.element_bytes) for access in (*anchor.reads, anchor.write)]
    total = sum(size)
    if total <= _L2_SHARE * gpu.level("L2").size_bytes:
        return total
    along = -(-anchor.axes[roles.column].extent // block.columns)
    at_once = max(1.0, gpu.multiprocessors * placed.per_multiprocessor / along)
    sweeps = max(1.0, placed.grid / along / at_once)
    for access, bytes_ in zip(anchor.reads, size, strict=False):
        moves_columns = any(move.moved for move in access.moves[roles.column])
        if moves_columns and bytes_ > _L2_SHARE * gpu.level("L2").size_bytes:
            total += bytes_ * (sweeps - 1.0)
    return total
