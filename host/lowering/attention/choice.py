"""Whether attention on a GPU is faster as one kernel than as three: an estimate from the hardware model.

Three kernels write the scores to memory and read them, twice: as halves from one kernel to the next. One
kernel starts once and keeps them in registers, but holds the rows of its block against all keys: with few
rows and heads it has fewer blocks than the three.
"""

from __future__ import annotations

from dataclasses import dataclass

from targets import GpuModel

# Fewer columns or elements of a head than an instruction has are mostly zeros; more elements than these do
# not fit the registers.
_LEAST, _MOST_SIZE = 16, 128
# Rows of a warp's tile, and warps that keep the tensor cores of one multiprocessor busy.
_ROWS, _BUSY_WARPS = 16, 8
# Share of the rate of the tensor cores that products reach.
_MATRIX_SHARE = 0.5
# Columns that a warp takes at a time, and cycles of one such step from start to end.
_STEP_COLUMNS, _STEP_CYCLES = 64, 900.0
# Part of L2 that the scores can count on.
_L2_SHARE = 0.75
_HALF_BYTES = 2


@dataclass(frozen=True)
class MatrixExtents:
    """The sizes of an attention.

    Attributes:
        batch: heads of all sequences.
        rows: of queries.
        columns: keys.
        depth: elements of a query and of a key.
        width: elements of a value.
    """

    batch: int
    rows: int
    columns: int
    depth: int
    width: int


def is_faster_as_one(extents: MatrixExtents, gpu: GpuModel) -> bool:
    """Whether one kernel is possible, and estimated to be faster."""
    sizes = (extents.depth, extents.width)
    if extents.columns < _LEAST or min(sizes) < _LEAST or max(sizes) > _MOST_SIZE:
        return False
    return one_kernel_seconds(extents, gpu) < three_kernels_seconds(extents, gpu)


def one_kernel_seconds(extents: MatrixExtents, gpu: GpuModel) -> float:
    """Estimated seconds of one kernel: the longest chain of steps, or the products."""
    warps = extents.batch * -(-extents.rows // _ROWS)
    turns = max(1.0, warps / (gpu.multiprocessors * _BUSY_WARPS))
    chain = turns * -(-extents.columns // _STEP_COLUMNS) * _STEP_CYCLES / gpu.frequency_hz
    return gpu.launch_s + max(chain, _products_seconds(extents, gpu))


def three_kernels_seconds(extents: MatrixExtents, gpu: GpuModel) -> float:
    """Estimated seconds of two products and a softmax, with the scores in memory between them."""
    scores = float(_HALF_BYTES * extents.batch * extents.rows * extents.columns)
    level = gpu.level("L2" if scores <= _L2_SHARE * gpu.level("L2").size_bytes else "DRAM")
    moved = 4.0 * scores / level.bandwidth_bytes_per_s
    return 3.0 * gpu.launch_s + moved + _products_seconds(extents, gpu)


def _products_seconds(extents: MatrixExtents, gpu: GpuModel) -> float:
    points = extents.batch * extents.rows * extents.columns * (extents.depth + extents.width)
    rate = _MATRIX_SHARE * gpu.matrix_fp16_per_cycle * gpu.multiprocessors * gpu.frequency_hz
    return points / rate
