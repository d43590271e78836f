"""Estimated time of attention on tensor cores.

As in `cuda.mma.cost`: a turn of the loop over keys is bound by the tensor cores, by shared memory, by the
units of powers, or by the issue of instructions; a block that is alone on its multiprocessor also waits for
copies that its stages do not cover, and for the chain of a warp's steps. Instructions are counted in the
program; the constants that the two kernels share are those measured for `cuda_mma` on an H200. Nothing of
this kernel was measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from host.schedules.cuda.attention.shape import UNIT
from host.schedules.cuda.attention.tiles import MMA_COLUMNS, WARP, Tiling
from host.schedules.cuda.multiprocessor import Occupancy, Work, bandwidth, occupancy, waves
from host.schedules.cuda.sources import CHUNK_BYTES
from targets import GpuModel

# As `cuda.mma.cost`: cycles until matrices that are loaded can be multiplied, until a product can be added
# to, and of a barrier; the share of smaller terms that does not hide behind the largest; bytes of copies that
# arrive at a multiprocessor in a cycle; the share of the tensor cores' rate that loops reach; L2 that
# repeated reads can count on; bytes of a bank.
_LOAD_LATENCY, _MMA_LATENCY, _BARRIER_CYCLES = 30.0, 33.0, 24.0
_EXPOSED, _ARRIVING_BYTES, _MATRIX_SHARE, _L2_SHARE, _BANK_BYTES = 0.23, 40.0, 0.69, 0.75, 4
# Instructions of a warp for a score: the maximum, the multiply-add before its power, the total, and half of a
# conversion; with a mask, its load, its addition, bounds and the scale.
_SCORE_INSTRUCTIONS, _MASK_INSTRUCTIONS, _CAUSAL_INSTRUCTIONS = 3.5, 6.0, 3.0
# Of a copy, an element that is copied alone, a turn, a row's exchanges, and a sum that is scaled or written.
_COPY_INSTRUCTIONS, _ELEMENT_INSTRUCTIONS, _TURN_INSTRUCTIONS, _ROW_INSTRUCTIONS = 3.0, 4.0, 40.0, 16.0
_WRITE_INSTRUCTIONS = 2.0
# Powers of a multiprocessor in a cycle (CUDA C++ Programming Guide, "Throughput of Native Arithmetic
# Instructions"), and cycles of the exchanges and powers of a row that follow one another.
_POWERS_PER_CYCLE, _ROW_CYCLES = 16.0, 130.0


def attention_seconds(tiling: Tiling, gpu: GpuModel) -> float:
    """Estimated seconds of one call of a program of the `cuda_attention` rule."""
    shape = tiling.shape
    grid = shape.heads * tiling.row_blocks
    placed = occupancy(gpu, grid, tiling.threads, tiling.registers, tiling.shared_bytes)
    compute = waves(gpu, placed, _work(tiling, gpu)) / gpu.frequency_hz
    level = gpu.level("L2")
    l2_seconds = _l2_bytes(tiling, placed) / level.bandwidth_bytes_per_s
    resident = min(grid, gpu.multiprocessors * placed.per_multiprocessor)
    coming = resident * max(1, tiling.stages - 1) * tiling.stage_bytes
    dram_seconds = _dram_bytes(tiling, gpu) / bandwidth(gpu, coming)
    longest = max(compute, l2_seconds, dram_seconds)
    total = compute + l2_seconds + dram_seconds
    return longest + _EXPOSED * (total - longest) + gpu.launch_s


@dataclass(frozen=True)
class _Turn:
    """Cycles of a multiprocessor for one turn of one block, by what they are spent on."""

    arithmetic: float
    shared: float
    powers: float
    issue: float

    @property
    def busy(self) -> float:
        """Of the longest, and what of the others does not hide behind it."""
        terms = (self.arithmetic, self.shared, self.powers, self.issue)
        return max(terms) + _EXPOSED * (sum(terms) - max(terms))


def _turns(tiling: Tiling) -> float:
    """Turns of a block, on the average: a causal one sees half of the columns."""
    return (tiling.turns + 1) / 2 if tiling.shape.causal and tiling.turns > 1 else float(tiling.turns)


def _work(tiling: Tiling, gpu: GpuModel) -> Work:
    """The cycles of one thread block, with other blocks beside it and alone."""
    turn, shape = _turn(tiling, gpu), tiling.shape
    warps = tiling.warps * tiling.slices
    per_scheduler = -(-warps // gpu.partitions) * gpu.partitions / warps
    # A warp's steps follow one another: products of a unit, the maximum, powers, products.
    units = shape.depth_units + tiling.columns // UNIT
    chain = units * _MMA_LATENCY + 2 * _LOAD_LATENCY + _BARRIER_CYCLES + _ROW_CYCLES
    chain += _issued(tiling) / max(1, tiling.strips)
    working = max(turn.busy * per_scheduler, chain)
    latency = gpu.level("L2").latency_s * gpu.frequency_hz
    arriving = tiling.stage_bytes / _ARRIVING_BYTES
    if tiling.stages == 1:
        alone = working + latency + arriving
    else:
        alone = max(working, arriving, (latency + arriving) / (tiling.stages - 1))
    first = gpu.level("DRAM").latency_s * gpu.frequency_hz + (arriving if tiling.stages > 1 else 0.0)
    turns, ends = _turns(tiling), _end_cycles(tiling, gpu)
    return Work(turns * (turn.busy + _BARRIER_CYCLES) + ends, first + turns * alone + ends * per_scheduler)


def _products(tiling: Tiling) -> float:
    """Products of a warp's matrices in a turn."""
    shape = tiling.shape
    scores = tiling.columns // MMA_COLUMNS * shape.depth_units
    mixed = tiling.columns // UNIT * 2 * shape.width_units
    return tiling.strips * float(scores + mixed)


def _loads(tiling: Tiling) -> float:
    """Loads of a warp of four matrices in a turn."""
    return tiling.columns // UNIT * float(tiling.shape.depth_units + tiling.shape.width_units)


def _issued(tiling: Tiling) -> float:
    """Instructions of a warp in a turn, copies left out."""
    shape = tiling.shape
    each = _SCORE_INSTRUCTIONS
    each += _MASK_INSTRUCTIONS if shape.mask is not None else 0.0
    each += _CAUSAL_INSTRUCTIONS if shape.causal else 0.0
    rows = tiling.kept_rows * _ROW_INSTRUCTIONS + tiling.sums
    return _products(tiling) + _loads(tiling) + tiling.scores * each + rows + _TURN_INSTRUCTIONS


def _copying(tiling: Tiling) -> float:
    """Instructions of a warp for the copies of a turn."""
    return sum(
        tiling.rounds(tile) * (_COPY_INSTRUCTIONS + (8 * _ELEMENT_INSTRUCTIONS if tile.gathered else 0.0))
        for tile in (tiling.keys, tiling.values)
    )


def _turn(tiling: Tiling, gpu: GpuModel) -> _Turn:
    """What one turn costs a multiprocessor."""
    warps = tiling.warps * tiling.slices
    points = warps * _products(tiling) * UNIT * MMA_COLUMNS * UNIT
    moved = warps * _loads(tiling) * WARP * CHUNK_BYTES + tiling.stage_bytes
    return _Turn(
        arithmetic=points / (_MATRIX_SHARE * gpu.matrix_fp16_per_cycle),
        shared=moved / (_BANK_BYTES * gpu.shared_banks),
        powers=warps * WARP * float(tiling.scores) / _POWERS_PER_CYCLE,
        issue=warps * (_issued(tiling) + _copying(tiling)) / gpu.partitions,
    )


def _end_cycles(tiling: Tiling, gpu: GpuModel) -> float:
    """Cycles of a multiprocessor for queries, the sums of slices, and results."""
    numbers = tiling.query_words + _WRITE_INSTRUCTIONS * tiling.sums
    issued = tiling.warps * numbers
    if tiling.slices > 1:
        issued += tiling.warps * (tiling.slices - 1) * 4.0 * tiling.part_words
    return issued / gpu.partitions + (2 * _BARRIER_CYCLES if tiling.slices > 1 else 0.0)


def _sizes(tiling: Tiling) -> tuple[float, float]:
    """Bytes of the queries and results, and of the keys and values, of one head."""
    shape = tiling.shape
    rows = shape.rows * (shape.depth * shape.query.access.element_bytes)
    rows += shape.rows * shape.width * shape.output.access.element_bytes
    kept = shape.depth * shape.key.access.element_bytes + shape.width * shape.value.access.element_bytes
    return float(rows), float(shape.columns * kept)


def _mask_bytes(tiling: Tiling) -> float:
    mask = tiling.shape.mask
    return 0.0 if mask is None else float(mask.access.elements * mask.access.element_bytes)


def _l2_bytes(tiling: Tiling, placed: Occupancy) -> float:
    """Bytes between L2 and the multiprocessors: keys and values once for each block."""
    rows, kept = _sizes(tiling)
    share = _turns(tiling) / tiling.turns
    mask = tiling.shape.mask
    masks = 0.0
    if mask is not None:
        seen = tiling.shape.rows if mask.moves_with(-2) else tiling.row_blocks
        masks = float(tiling.shape.heads * seen * tiling.shape.columns * mask.access.element_bytes)
    return tiling.shape.heads * rows + placed.grid * kept * share + masks


def _dram_bytes(tiling: Tiling, gpu: GpuModel) -> float:
    """Bytes from DRAM: each tensor once; blocks of one head run side by side and share its keys."""
    rows, kept = _sizes(tiling)
    total = tiling.shape.heads * (rows + kept) + _mask_bytes(tiling)
    if kept <= _L2_SHARE * gpu.level("L2").size_bytes:
        return total
    return total + tiling.shape.heads * kept * (tiling.row_blocks - 1)
