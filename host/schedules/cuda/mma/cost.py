"""Estimated time of a product on tensor cores.

As in `cuda.tiled.cost`, each level of memory has its traffic (Roller, OSDI'22) and blocks run in waves. A
step of the loop over the depth is bound by the tensor cores, by shared memory, or by the issue of
instructions; a block that is alone on its multiprocessor also waits for copies that its stages do not cover.
The terms for waiting are ours. Instructions, shares and the bytes that arrive are from 1,480 programs that
were measured on an H200 (docs/cuda.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from host.schedules.cuda.mma.product import STORED, Operand, Product
from host.schedules.cuda.mma.shares import SEGMENTS, Shares, tiles_of
from host.schedules.cuda.mma.tiles import MMA_COLUMNS, MMA_ROWS, WARP, SharedTile, Tiling
from host.schedules.cuda.multiprocessor import Occupancy, Work, bandwidth, occupancy, waves
from host.schedules.cuda.sources import CHUNK_BYTES
from targets import GpuModel

# Instructions of a warp around a load of matrices, a copy, an element that is copied alone, a tile of the
# depth, four results, and of an index that is divided by an extent: addresses and conditions among them.
_LOAD_INSTRUCTIONS, _COPY_INSTRUCTIONS, _ELEMENT_INSTRUCTIONS, _STEP_INSTRUCTIONS = 1.0, 2.0, 4.0, 55.0
_RESULT_INSTRUCTIONS, _DIVISION_INSTRUCTIONS = 14.0, 6.0
# Cycles until matrices that are loaded can be multiplied, until a product can be added to, of a barrier
# (mma.sync m16n8k16 on Ampere: about 33 cycles, arXiv 2206.02874, table 5; the others as `cuda.tiled`), and
# of an instruction in a chain of those that depend on each other, some of them side by side.
_LOAD_LATENCY, _MMA_LATENCY, _BARRIER_CYCLES, _DEPENDENT_CYCLES = 30.0, 33.0, 24.0, 2.0
# Of a product whose sums in halves go to single precision: four conversions, four additions, two zeros. What
# these sums have to gain, since they make results less exact.
_PROMOTE_INSTRUCTIONS, _LEAST_GAIN = 10.0, 1.02
# Share of the smaller terms that does not hide behind the largest.
_EXPOSED = 0.23
# Bytes of copies that arrive at one multiprocessor in a cycle, and the share of the tensor cores' rate that
# loops reach.
_ARRIVING_BYTES, _MATRIX_SHARE = 40.0, 0.69
# Part of L2 that repeated reads can count on.
_L2_SHARE = 0.75
# What passes to and from shared memory in a cycle, by all banks.
_BANK_BYTES = 4


def cuda_mma_seconds(product: Product, tiling: Tiling, gpu: GpuModel, shares: Shares | None = None) -> float:
    """Estimated seconds of one call of a program of the `cuda_mma` rule.

    Args:
        product: of the anchor.
        tiling: of the program.
        gpu: the GPU.
        shares: of the tiles that fill no wave, where the program has such.
    """
    tiles = tiles_of(product, tiling)
    # A construction also weighs decisions that are not legal: there is nothing to share then.
    splits = max(1, tiling.splits)
    grid = shares.blocks if shares else tiles * splits
    placed = occupancy(gpu, grid, tiling.threads, tiling.registers, tiling.shared_bytes)
    steps = _tiles(product.steps, tiling.depth)
    if shares is None:
        cycles = waves(gpu, placed, _work(product, tiling, gpu, steps // splits))
    else:
        cycles = waves(gpu, replace(placed, grid=shares.whole), _work(product, tiling, gpu, steps))
        work = _work(product, tiling, gpu, shares.each, SEGMENTS)
        cycles += waves(gpu, replace(placed, grid=shares.count), work)
    compute = cycles / gpu.frequency_hz
    l2_seconds = _l2_bytes(product, tiling, tiles, gpu) / gpu.level("L2").bandwidth_bytes_per_s
    resident = min(placed.grid, gpu.multiprocessors * placed.per_multiprocessor)
    coming = resident * (tiling.stages - 1) * tiling.stage_bytes
    dram_seconds = _dram_bytes(product, tiling, gpu, placed) / bandwidth(gpu, coming)
    longest = max(compute, l2_seconds, dram_seconds)
    total = compute + l2_seconds + dram_seconds
    launches = gpu.launch_s + _joining_s(product, tiling, gpu, shares)
    seconds = longest + _EXPOSED * (total - longest) + launches
    return seconds * _LEAST_GAIN if tiling.half_sums else seconds


@dataclass(frozen=True)
class _Step:
    """Cycles of a multiprocessor for one tile of the depth of one block, by what they are spent on."""

    arithmetic: float
    shared: float
    issue: float


def _joining_s(product: Product, tiling: Tiling, gpu: GpuModel, shares: Shares | None) -> float:
    """Seconds of the kernel that adds up the parts of sums, which are written and read once."""
    if tiling.splits <= 1 and shares is None:
        return 0.0
    sums = tiling.splits * product.results
    if shares is not None:
        # As many parts as dealt tiles, and one more wherever a share ends inside of one.
        sums = (shares.dealt + shares.count) * tiling.block_rows * tiling.block_columns
    level = gpu.level("L2" if 4 * sums <= _L2_SHARE * gpu.level("L2").size_bytes else "DRAM")
    return gpu.next_launch_s + 2.0 * 4 * sums / level.bandwidth_bytes_per_s + level.latency_s


def _tiles(extent: int, tile: int) -> int:
    return -(-extent // tile)


def _work(product: Product, tiling: Tiling, gpu: GpuModel, steps: int, segments: int = 1) -> Work:
    """The cycles of one thread block, with other blocks beside it and alone.

    Args:
        product: of the anchor.
        tiling: of the program.
        gpu: the GPU.
        steps: of the block along the depth.
        segments: tiles that it has parts of; in front of each it waits for the first copies.
    """
    step = _step(product, tiling, gpu)
    bound = max(step.arithmetic, step.shared, step.issue)
    busy = bound + _EXPOSED * (step.arithmetic + step.shared + step.issue - bound)
    # Warps of a block that are fewer than the schedulers leave some of those, and their tensor cores, idle.
    per_scheduler = -(-tiling.warps // gpu.partitions) * gpu.partitions / tiling.warps
    chain = tiling.turns * _MMA_LATENCY + _LOAD_LATENCY + _BARRIER_CYCLES
    # What one warp issues between its products depends on what it issued before.
    chain += _DEPENDENT_CYCLES * (_STEP_INSTRUCTIONS + _copying(product, tiling))
    working = max(busy * per_scheduler, chain)
    latency = gpu.level("DRAM").latency_s * gpu.frequency_hz
    arriving = tiling.stage_bytes / _ARRIVING_BYTES
    alone = max(working, arriving, (latency + arriving) / (tiling.stages - 1))
    epilogue = segments * _epilogue_cycles(tiling, gpu)
    once = _window_cycles(product, tiling, gpu)
    return Work(
        steps * (busy + _BARRIER_CYCLES) + epilogue + once,
        segments * latency + steps * alone + epilogue * per_scheduler + once,
    )


def _window_cycles(product: Product, tiling: Tiling, gpu: GpuModel) -> float:
    """Cycles of a multiprocessor for what a window reads of an image, which a block copies once."""
    if not product.windowed:
        return 0.0
    issued = tiling.warps * _copy_instructions(product, tiling, tiling.left, product.left) / gpu.partitions
    return issued + max(
        tiling.left.bytes / (_BANK_BYTES * gpu.shared_banks), tiling.left.bytes / _ARRIVING_BYTES
    )


def _step(product: Product, tiling: Tiling, gpu: GpuModel) -> _Step:
    """What one tile of the depth costs a multiprocessor."""
    turns = tiling.depth // product.mma_depth * tiling.row_warps * tiling.column_warps
    tall, wide = tiling.rows // MMA_ROWS, tiling.columns // MMA_COLUMNS
    products = turns * tall * wide
    loads = turns * (tall + wide / 2)
    own = _copying(product, tiling) + _STEP_INSTRUCTIONS
    if tiling.half_sums:
        own += tall * wide * _PROMOTE_INSTRUCTIONS
    issued = products + loads * _LOAD_INSTRUCTIONS + tiling.warps * own
    moved = loads * WARP * CHUNK_BYTES + tiling.stage_bytes
    rate = gpu.matrix_int8_per_cycle if product.bytes else gpu.matrix_fp16_per_cycle
    if tiling.half_sums:
        rate = gpu.matrix_half_sums_per_cycle
    return _Step(
        arithmetic=products * MMA_ROWS * MMA_COLUMNS * product.mma_depth / (_MATRIX_SHARE * rate),
        shared=moved / (_BANK_BYTES * gpu.shared_banks),
        issue=issued / gpu.partitions,
    )


def _copying(product: Product, tiling: Tiling) -> float:
    """Instructions of a warp for the copies of a tile of the depth."""
    operands = [(tiling.left, product.left), (tiling.right, product.right)]
    # What a window reads is copied once, see `_window_cycles`.
    operands = operands[1:] if product.windowed else operands
    return sum(_copy_instructions(product, tiling, tile, operand) for tile, operand in operands)


def _copy_instructions(product: Product, tiling: Tiling, tile: SharedTile, operand: Operand) -> float:
    """Instructions of a warp for the copy of a tile; axes that are numbered together take divisions."""
    gathering = tile.loads * _ELEMENT_INSTRUCTIONS if tile.loads > 1 else 0.0
    divisions = max(0, len(operand.outer) - 1) + len(product.depth) - 1
    if operand is product.right and product.groups.joined > 1:
        # The group of the column, and that of the channel.
        divisions += 2
    return tiling.rounds(tile) * (gathering + _COPY_INSTRUCTIONS + divisions * _DIVISION_INSTRUCTIONS)


def _epilogue_cycles(tiling: Tiling, gpu: GpuModel) -> float:
    """Cycles of a multiprocessor for the sums of a block: through shared memory, and what follows."""
    results = tiling.block_rows * tiling.block_columns
    passed = 2 * 4 * results * tiling.slices / (_BANK_BYTES * gpu.shared_banks)
    issued = results / (STORED * WARP) * (_RESULT_INSTRUCTIONS + 2.0 * tiling.slices) / gpu.partitions
    barriers = 2 * _BARRIER_CYCLES * tiling.rows / MMA_ROWS
    return max(passed, issued) + barriers


def _l2_bytes(product: Product, tiling: Tiling, tiles: int, gpu: GpuModel) -> float:
    """Bytes between L2 and the multiprocessors, in whole transactions."""
    rows = min(tiling.block_rows, product.rows)
    columns = min(tiling.block_columns, product.columns)
    each = 0.0
    # What lies between groups is zero, and is not read.
    read = product.steps / product.groups.joined
    operands = [(product.left, rows, product.steps), (product.right, columns, read)]
    for operand, outer, steps in operands[1:] if product.windowed else operands:
        run = tiling.depth if operand.along_depth else outer
        segment = math.ceil(operand.stored * run / gpu.transaction_bytes) * gpu.transaction_bytes
        each += outer * steps / run * segment
    if product.windowed:
        each += tiling.left.bytes
    written = product.rows * product.kept * product.batches * product.result.element_bytes
    return tiles * each + written


def _dram_bytes(product: Product, tiling: Tiling, gpu: GpuModel, placed: Occupancy) -> float:
    """Bytes from DRAM: each buffer once, and the left operand again where L2 does not hold it.

    Blocks follow each other along the rows, so that those that run together share columns; the left operand
    is swept once for every group of columns that do not run at the same time.
    """
    sizes = [one.access.elements * one.stored for one in (product.left, product.right)]
    sizes.append(float(product.result.elements * product.result.element_bytes))
    total = math.fsum(sizes)
    capacity = _L2_SHARE * gpu.level("L2").size_bytes
    if total <= capacity or sizes[0] / product.batches <= capacity:
        return total
    at_once = max(
        1.0, gpu.multiprocessors * placed.per_multiprocessor / _tiles(product.rows, tiling.block_rows)
    )
    sweeps = max(1.0, _tiles(product.columns, tiling.block_columns) / at_once)
    return total + sizes[0] * (sweeps - 1.0)
