"""Reductions along columns: means, sums and extremes over positions, for each channel of an image.

A block has neighbouring columns, a thread `vector` of them; its `warps` take positions in turn. Where there
are few columns, `splits` blocks share the positions of the same ones, and a second kernel combines what they
have.
"""

from __future__ import annotations

from collections.abc import Mapping

from host.schedules.api import GPU, DecisionKind, Decisions, Level, Rule, Sampler, WordClass
from host.schedules.cuda.columnwise.columns import Columns, columns_of, vector_of
from host.schedules.cuda.columnwise.cost import cuda_columnwise_seconds
from host.schedules.cuda.columnwise.program import ColumnTiles, Program
from host.schedules.cuda.epilogue import anchor_and_epilogue
from host.schedules.cuda.multiprocessor import MANY_RESULTS, gpu_of
from host.schedules.workload import Workload
from targets import HardwareModel

_WARPS, _SPLITS, _VECTORS = (1, 2, 4, 8, 16, 32), (1, 2, 4, 8, 16, 32, 64), (1, 2, 4, 8)
# Bound on what blocks have of results, as of products on tensor cores.
_MOST_PARTS_BYTES = 32 << 20


class CudaColumnwise(Rule):
    """Lanes have neighbouring columns, warps and blocks share the positions."""

    name = "cuda_columnwise"
    processor = GPU
    version = 2
    priority = 9
    traced = False
    decisions = (
        DecisionKind("warps", Level.BLOCK, WordClass.PARALLEL),
        DecisionKind("splits", Level.BLOCK, WordClass.PARALLEL),
        DecisionKind("vector", Level.REGISTER, WordClass.TILE),
    )

    def matches(self, workload: Workload, hardware: HardwareModel) -> bool:
        """A reduction to fewer results than the GPU has room for threads."""
        gpu, columns = hardware.gpu, columns_of(workload)
        return (
            gpu is not None and columns is not None and columns.results < MANY_RESULTS * gpu.multiprocessors
        )

    def choices(self, workload: Workload, hardware: HardwareModel) -> Mapping[str, tuple[int, ...]]:
        """Warps of a block, blocks that share positions, and columns of a thread."""
        vectors = tuple(size for size in _VECTORS if vector_of(workload) % size == 0)
        return {"warps": _WARPS, "splits": _SPLITS, "vector": vectors}

    def legal(self, workload: Workload, hardware: HardwareModel, values: Decisions) -> bool:
        """Threads of a block are within the GPU's, and hardly any of them is without a position."""
        tiles, gpu = _tiles(workload, values), gpu_of(hardware)
        if tiles.warps * gpu.warp > gpu.threads_per_block:
            return False
        if tiles.shared_bytes > gpu.shared_per_block:
            return False
        if tiles.splits > 1 and tiles.parts_bytes > _MOST_PARTS_BYTES:
            return False
        return tiles.warps * tiles.splits == 1 or tiles.slices * tiles.splits < 2 * tiles.columns.steps

    def apply(self, sampler: Sampler, workload: Workload, hardware: HardwareModel, threads: int) -> None:
        """Puts the nest of blocks and warps in the place of the function's body."""
        for kind in self.decisions:
            sampler.sample(kind.name)
        tiles = _tiles(workload, sampler.values)
        anchor, epilogue = anchor_and_epilogue(sampler.schedule, workload, tiles.columns.count)
        Program(tiles, anchor, epilogue).put_into(sampler.schedule)

    def estimate_s(
        self, workload: Workload, hardware: HardwareModel, threads: int, values: Decisions
    ) -> float:
        """Estimated seconds of one call, see `cost`."""
        return cuda_columnwise_seconds(workload, _tiles(workload, values), gpu_of(hardware))


def _tiles(workload: Workload, values: Decisions) -> ColumnTiles:
    columns = columns_of(workload)
    assert isinstance(columns, Columns), "the rule matched before"
    return ColumnTiles(columns, values["warps"], values["splits"], values["vector"])


RULE = CudaColumnwise()
