"""Pooling on a GPU: extremes and means over windows of an image whose channels lie side by side.

A thread computes `width` neighbouring channels of `rows` x `cols` results, whose windows share what it loads.
"""

from __future__ import annotations

from collections.abc import Mapping

from host.schedules.api import GPU, DecisionKind, Decisions, Level, Rule, Sampler, WordClass
from host.schedules.cuda.columnwise.columns import columns_of
from host.schedules.cuda.epilogue import anchor_and_epilogue
from host.schedules.cuda.image_windows import THREADS, TILE_COLUMNS, TILE_ROWS, ImageWindows, up_to
from host.schedules.cuda.multiprocessor import MANY_RESULTS, gpu_of
from host.schedules.cuda.windows.cost import cuda_windows_seconds
from host.schedules.cuda.windows.pool import pool_of
from host.schedules.cuda.windows.program import Program
from host.schedules.cuda.windows.tiles import tiling_of
from host.schedules.workload import Workload
from targets import HardwareModel

# Bounds on vectors that are loaded one after the other, and on what is combined of their elements: code
# beyond that leaves the instruction cache.
_MOST_PLACES, _MOST_STEPS = 64, 640


class CudaWindows(Rule):
    """Every thread has neighbouring channels of a few results, and needs no shared memory."""

    name = "cuda_windows"
    processor = GPU
    version = 1
    priority = 9
    traced = False
    decisions = (
        DecisionKind("width", Level.REGISTER, WordClass.TILE),
        DecisionKind("rows", Level.REGISTER, WordClass.TILE),
        DecisionKind("cols", Level.REGISTER, WordClass.TILE),
        DecisionKind("threads", Level.BLOCK, WordClass.PARALLEL),
    )

    def matches(self, workload: Workload, hardware: HardwareModel) -> bool:
        """A reduction over windows with channels side by side, whose results fill the GPU or overlap."""
        gpu, pool = hardware.gpu, pool_of(workload)
        if gpu is None or pool is None:
            return False
        # Few results, of elements that belong to one each, are for threads that share them.
        columns = columns_of(workload)
        return columns is None or columns.results >= MANY_RESULTS * gpu.multiprocessors

    def choices(self, workload: Workload, hardware: HardwareModel) -> Mapping[str, tuple[int, ...]]:
        """The tile of a thread, and threads of a block."""
        pool = _pool(workload)
        rows = TILE_ROWS if pool.rows.axis is not None else (1,)
        return {
            "width": up_to((1, 2, 4, 8), pool.width),
            "rows": up_to(rows, pool.rows.extent),
            "cols": up_to(TILE_COLUMNS, pool.columns.extent),
            "threads": THREADS,
        }

    def legal(self, workload: Workload, hardware: HardwareModel, values: Decisions) -> bool:
        """Registers and threads are within the GPU's, and the code within the instruction cache."""
        pool, gpu = _pool(workload), gpu_of(hardware)
        tiling = tiling_of(pool, values)
        if not tiling.fits(gpu):
            return False
        steps = tiling.results * (1 if tiling.loops else pool.rows.taps) * pool.columns.taps * tiling.width
        # The least tile is a program of any pooling.
        least = tiling.results == 1
        return least or (tiling.written_places <= _MOST_PLACES and steps <= _MOST_STEPS)

    def apply(self, sampler: Sampler, workload: Workload, hardware: HardwareModel, threads: int) -> None:
        """Puts the nest of blocks and threads in the place of the function's body."""
        for kind in self.decisions:
            sampler.sample(kind.name)
        pool = _pool(workload)
        anchor, epilogue = anchor_and_epilogue(sampler.schedule, workload, pool.channels)
        Program(tiling_of(pool, sampler.values), anchor, epilogue).put_into(sampler.schedule)

    def estimate_s(
        self, workload: Workload, hardware: HardwareModel, threads: int, values: Decisions
    ) -> float:
        """Estimated seconds of one call, see `cost`."""
        return cuda_windows_seconds(tiling_of(_pool(workload), values), gpu_of(hardware))


def _pool(workload: Workload) -> ImageWindows:
    pool = pool_of(workload)
    assert pool is not None, "the rule matched before"
    return pool


RULE = CudaWindows()
