"""Products of halves and of bytes on tensor cores: weights, batches, and those of attention.

A warp holds a tile of `rows` x `cols` sums in registers, in single precision or in 32 bits; a block has
`row_warps` x `column_warps` of them, `slices` times: each slice takes `depth` steps of a tile's reduction,
and their sums are added up in the end. Shared memory holds `stages` tiles: one is multiplied while the others
are on their way. Where a result has few tiles, `splits` blocks share the reduction of each, so that there are
blocks for all multiprocessors; a second kernel adds up what they have and goes through the stages after it.
With `splits` 0 only the tiles that fill no wave are shared, evenly by all multiprocessors (`shares`). Narrow
groups of a convolution lie side by side in one product (`groups`). With `halo` a block copies all that the
taps of its window read of an image at once (`window`), where the result has few columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from host.lowering.ops.contraction.matrices import NARROW
from host.schedules.api import GPU, DecisionKind, Decisions, Level, Rule, Sampler, WordClass
from host.schedules.cuda.common import sizes_up_to
from host.schedules.cuda.epilogue import inlined
from host.schedules.cuda.mma.cost import cuda_mma_seconds
from host.schedules.cuda.mma.product import HALO, STORED, Product, decided, product_of
from host.schedules.cuda.mma.program import Program
from host.schedules.cuda.mma.shares import SEGMENTS, Shares, shares_of, tiles_of
from host.schedules.cuda.mma.tiles import MMA_ROWS, WARP, Tiling, tiling_of
from host.schedules.cuda.multiprocessor import gpu_of, register_limit
from host.schedules.workload import Workload
from targets import GpuModel, HardwareModel

_ROWS, _COLUMNS, _STAGES = (16, 32, 64), (32, 64), (2, 3, 4)
# Of products that have no more of them.
_FEW_COLUMNS = (NARROW,)
# Of the depth of a slice: 8 halves or 16 bytes each.
_CHUNKS = (2, 4, 8)
_ROW_WARPS, _COLUMN_WARPS, _SLICES = (1, 2, 4), (1, 2, 4, 8), (1, 2, 4)
# 0: the multiprocessors share the tiles that fill no wave. Last, since constructions begin with the first.
_SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 0)
# Bounds on a block's tile, and on the copies that are written out one after the other.
_MOST_ROWS, _MOST_COLUMNS, _MOST_CHUNKS, _MOST_COPIES = 128, 256, 16, 64
_MOST_WARPS = 16
# Chunks of the depth that each of several splits has at least, and bytes of all their sums.
_LEAST_SPLIT, _MOST_PARTS_BYTES = 8, 32 << 20


class CudaMma(Rule):
    """Tiles of sums in the registers of warps, operands in shared memory, several stages on their way."""

    name = "cuda_mma"
    processor = GPU
    version = 3
    priority = 8
    traced = False
    # Tiles of warps, warps, slices and splits divide one product; stages share the memory that tiles leave.
    coupled = True
    decisions: ClassVar[tuple[DecisionKind, ...]] = (
        DecisionKind("rows", Level.REGISTER, WordClass.TILE),
        DecisionKind("cols", Level.REGISTER, WordClass.TILE),
        DecisionKind("row_warps", Level.BLOCK, WordClass.PARALLEL),
        DecisionKind("column_warps", Level.BLOCK, WordClass.PARALLEL),
        DecisionKind("slices", Level.BLOCK, WordClass.PARALLEL, starts_wide=True),
        DecisionKind("depth", Level.BLOCK, WordClass.TILE),
        DecisionKind("stages", Level.BLOCK, WordClass.TILE),
        DecisionKind("splits", Level.BLOCK, WordClass.PARALLEL, starts_wide=True),
        DecisionKind(HALO, Level.BLOCK, WordClass.SWITCH),
    )

    def matches(self, workload: Workload, hardware: HardwareModel) -> bool:
        """A product of two matrices of halves or bytes, on a GPU that has the instruction for it."""
        gpu, product = hardware.gpu, product_of(workload)
        if gpu is None or product is None:
            return False
        return (gpu.matrix_int8_per_cycle if product.bytes else gpu.matrix_fp16_per_cycle) > 0

    def choices(self, workload: Workload, hardware: HardwareModel) -> Mapping[str, tuple[int, ...]]:
        """Tiles of warps and blocks, and how much of the operands is being copied at a time."""
        product = _product(workload)
        # Of products with few columns, copies of the left operand take longest.
        windowed = product.window is not None and product.columns <= NARROW
        return {
            **({HALO: (0, 1)} if windowed else {}),
            "rows": sizes_up_to(_ROWS, product.rows),
            "cols": _FEW_COLUMNS if product.columns <= NARROW else sizes_up_to(_COLUMNS, product.columns),
            "row_warps": _ROW_WARPS,
            "column_warps": _COLUMN_WARPS,
            "slices": _SLICES,
            "depth": sizes_up_to(tuple(chunks * product.chunk for chunks in _CHUNKS), product.steps),
            "stages": _STAGES,
            "splits": tuple(
                n for n in _SPLITS if n == 1 or max(2, n) * _LEAST_SPLIT * product.chunk <= product.steps
            ),
        }

    def legal(self, workload: Workload, hardware: HardwareModel, values: Decisions) -> bool:
        """Threads, registers and shared memory are within the GPU's; tiles are not mostly empty."""
        product, gpu = _product(workload, values), gpu_of(hardware)
        tiling = tiling_of(product, values)
        if product.windowed and tiling.splits != 1:
            return False
        if tiling.warps > _MOST_WARPS or tiling.depth > _MOST_CHUNKS * product.chunk:
            return False
        if tiling.slices > 1 and tiling.depth >= 2 * product.steps:
            return False
        if tiling.slices * WARP * STORED > MMA_ROWS * tiling.columns:
            return False
        if tiling.block_rows > _MOST_ROWS or tiling.block_columns > _MOST_COLUMNS:
            return False
        if not _divided(product, tiling, gpu):
            return False
        if tiling.row_warps > 1 and tiling.block_rows >= 2 * product.rows:
            return False
        if tiling.column_warps > 1 and tiling.block_columns >= 2 * product.columns:
            return False
        if sum(tiling.rounds(tile) * tile.loads for tile in (tiling.left, tiling.right)) > _MOST_COPIES:
            return False
        if tiling.registers > register_limit(gpu, tiling.threads):
            return False
        return tiling.shared_bytes <= gpu.shared_opt_in

    def apply(self, sampler: Sampler, workload: Workload, hardware: HardwareModel, threads: int) -> None:
        """Puts the nest of blocks and warps in the place of the function's body."""
        schedule, product = sampler.schedule, _product(workload, sampler.values)
        for kind in self.decisions:
            if kind.name in sampler.values:
                sampler.sample(kind.name)
        elements, epilogue = inlined(schedule, workload, product.kept)
        operands = (elements[product.left.position], elements[product.right.position])
        tiling = tiling_of(product, sampler.values)
        # More than a block may declare is asked for at launch.
        scope = "shared" if tiling.shared_bytes <= gpu_of(hardware).shared_per_block else "shared.dyn"
        shares = None if tiling.splits else _shares(product, tiling, gpu_of(hardware))
        program = Program(product, tiling, operands, epilogue, scope, shares)
        program.put_into(schedule)

    def estimate_s(
        self, workload: Workload, hardware: HardwareModel, threads: int, values: Decisions
    ) -> float:
        """Estimated seconds of one call, see `cost`."""
        product = _product(workload, values)
        tiling, gpu = tiling_of(product, values), gpu_of(hardware)
        shares = None if tiling.splits else _shares(product, tiling, gpu)
        return cuda_mma_seconds(product, tiling, gpu, shares)


def _divided(product: Product, tiling: Tiling, gpu: GpuModel) -> bool:
    """Whether the depth can be divided as `splits` says, and the sums of all parts take little memory."""
    if not tiling.splits:
        shares = _shares(product, tiling, gpu)
        if shares is None:
            return False
        sums = shares.count * SEGMENTS * tiling.block_rows * tiling.block_columns
        return 4 * sums <= _MOST_PARTS_BYTES
    if -(-product.steps // tiling.depth) % tiling.splits:
        return False
    return tiling.splits == 1 or 4 * tiling.splits * product.results <= _MOST_PARTS_BYTES


def _shares(product: Product, tiling: Tiling, gpu: GpuModel) -> Shares | None:
    least = max(1, _LEAST_SPLIT * product.chunk // tiling.depth)
    return shares_of(tiling, tiles_of(product, tiling), -(-product.steps // tiling.depth), least, gpu)


def _product(workload: Workload, values: Decisions | None = None) -> Product:
    product = product_of(workload)
    assert product is not None, "the rule matched before"
    return decided(product, values or {})


RULE = CudaMma()
