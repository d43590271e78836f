"""Stages without reductions on a GPU: every element a thread, neighbours in vectors where memory allows.

Where an input's neighbours are not the output's, `rows` and `columns` are the sides of tiles that blocks turn
in shared memory (`tiles`): threads load `fetch` neighbours along rows, and store `vector` along columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import s_tir
from tvm.tirx.analysis import undefined_vars

from host.schedules.api import GPU, DecisionKind, Decisions, Level, Rule, Sampler, WordClass
from host.schedules.cpu.common import inline_chain
from host.schedules.cuda.common import bind_flat
from host.schedules.cuda.injective.cost import cuda_injective_seconds, tiles_seconds
from host.schedules.cuda.injective.tiles import TileProgram, Tiles, tiles_of
from host.schedules.cuda.injective.transposition import Transposition, transposition_of
from host.schedules.cuda.multiprocessor import gpu_of
from host.schedules.cuda.sources import aligned_vector
from host.schedules.workload import Access, Stage, Workload
from targets import GpuModel, HardwareModel

# Elements that are computed by one statement: TVM has no code for longer vectors in single precision.
_MOST_LANES = 4


class CudaInjective(Rule):
    """Every output is one flat loop over blocks and threads."""

    name = "cuda_injective"
    processor = GPU
    version = 5
    priority = 30
    decisions = (
        DecisionKind("threads", Level.BLOCK, WordClass.PARALLEL),
        DecisionKind("vector", Level.BLOCK, WordClass.TILE),
        DecisionKind("rows", Level.BLOCK, WordClass.TILE, starts_wide=True),
        DecisionKind("columns", Level.BLOCK, WordClass.TILE, starts_wide=True),
        DecisionKind("fetch", Level.BLOCK, WordClass.SWITCH, starts_wide=True),
    )

    def matches(self, workload: Workload, hardware: HardwareModel) -> bool:
        """Whether no stage of the task reduces and the hardware has a GPU."""
        plain = all(stage.kind in ("injective", "padding") for stage in workload.stages)
        return plain and hardware.gpu is not None

    def choices(self, workload: Workload, hardware: HardwareModel) -> Mapping[str, tuple[int, ...]]:
        """Threads of a block, elements of one thread (at most 16 bytes), and sides of a tile, 0 for none."""
        found = {"threads": (32, 64, 128, 256, 512, 1024), "vector": _vectors(_width(workload))}
        transposition = transposition_of(workload)
        if transposition is None:
            return found
        return {
            "threads": found["threads"],
            "vector": max(found["vector"], _vectors(transposition.stores), key=len),
            "rows": (0, *transposition.sides(transposition.rows)),
            "columns": transposition.sides(transposition.columns),
            "fetch": _vectors(transposition.fetches),
        }

    def legal(self, workload: Workload, hardware: HardwareModel, values: Decisions) -> bool:
        """Whether a block has no more threads than the GPU allows, and a tile work for all and a layout."""
        gpu, transposition = gpu_of(hardware), transposition_of(workload)
        if values["threads"] > gpu.threads_per_block:
            return False
        if transposition is None:
            return True
        if not values["rows"]:
            # Without a tile, what belongs to one is not decided.
            undecided = (transposition.sides(transposition.columns)[0], 1)
            decided = (values["columns"], values["fetch"])
            return _width(workload) % values["vector"] == 0 and decided == undecided
        return transposition.stores % values["vector"] == 0 and _fits(tiles_of(transposition, values), gpu)

    def traces(self, values: Decisions) -> bool:
        """A program that turns tiles is written as a whole."""
        return not values.get("rows", 0)

    def apply(self, sampler: Sampler, workload: Workload, hardware: HardwareModel, threads: int) -> None:
        """Inlines producers; each output is one flat loop over blocks and threads, or turned in tiles."""
        schedule = sampler.schedule
        names = inline_chain(schedule, [stage.name for stage in workload.stages])
        if sampler.values.get("rows", 0):
            self._turn(sampler, workload, schedule.get(schedule.get_sblock(names[0])))
        else:
            for name in names:
                block = schedule.get_sblock(name)
                loops = schedule.get_loops(block) or [schedule.add_unit_loop(block)]
                threads, vector = sampler.value("threads"), sampler.value("vector")
                if vector > _MOST_LANES:
                    _through_registers(schedule, block, threads, vector)
                else:
                    bind_flat(schedule, list(loops), threads, vector)
        for kind in self.decisions:
            if kind.name in sampler.values:
                sampler.sample(kind.name)

    def _turn(self, sampler: Sampler, workload: Workload, block: s_tir.SBlock) -> None:
        transposition = transposition_of(workload)
        assert isinstance(transposition, Transposition), "the decision is open where there is one"
        TileProgram(tiles_of(transposition, sampler.values), block).put_into(sampler.schedule)

    def estimate_s(
        self, workload: Workload, hardware: HardwareModel, threads: int, values: Decisions
    ) -> float:
        """Estimated seconds of one call, see `cost`."""
        transposition = transposition_of(workload) if values.get("rows", 0) else None
        if transposition is not None:
            return tiles_seconds(workload, hardware, tiles_of(transposition, values))
        return cuda_injective_seconds(workload, hardware, values)


def _vectors(longest: int) -> tuple[int, ...]:
    """Powers of two that divide a number of neighbours."""
    return tuple(size for size in (1, 2, 4, 8, 16) if longest % size == 0)


def _fits(tiles: Tiles, gpu: GpuModel) -> bool:
    """Whether every thread has a part of a tile, which has a layout in the shared memory of a block."""
    if tiles.threads * max(tiles.fetch, tiles.vector) > tiles.rows * tiles.columns:
        return False
    if tiles.fetch > tiles.rows or tiles.vector > tiles.columns or tiles.shared_bytes > gpu.shared_per_block:
        return False
    return all(tiles.layout(access.element_bytes) for access in tiles.transposition.turned)


def _through_registers(schedule: s_tir.Schedule, block: Any, threads: int, vector: int) -> None:
    """Loads and stores more neighbours at once than are computed together: one by one, in registers.

    Args:
        schedule: of the function.
        block: all that is left of it.
        threads: of a thread block.
        vector: neighbours of a thread.
    """
    reads = schedule.get(block).reads
    last = schedule.get(block).iter_vars[-1].var
    near = [n for n, read in enumerate(reads) if read.region and _uses(read.region[-1].min, last)]
    copies = [schedule.cache_read(block, n, "local") for n in near]
    stored = schedule.cache_write(block, 0, "local")
    *outer, inner = schedule.get_loops(stored)
    inner, lanes = schedule.split(inner, [None, vector])
    fused = schedule.fuse(*outer, inner) if outer else inner
    grid, thread = schedule.split(fused, [None, threads])
    schedule.bind(grid, "blockIdx.x")
    schedule.bind(thread, "threadIdx.x")
    schedule.vectorize(lanes)
    schedule.compute_at(block, thread)
    for loop in schedule.get_loops(block)[2:]:
        schedule.unroll(loop)
    for copy in copies:
        schedule.compute_at(copy, thread)
        schedule.vectorize(schedule.get_loops(copy)[-1])


def _uses(index: Any, variable: Any) -> bool:
    return any(found.same_as(variable) for found in undefined_vars(index))


def _width(workload: Workload) -> int:
    """Elements along the innermost axis that one thread may take together, aligned wherever they lie."""
    outputs = [stage for stage in workload.stages if stage.write.argument]
    width = 2 * _MOST_LANES if _passes_registers(workload) else _MOST_LANES
    for stage in outputs:
        last = stage.axes[-1].extent if stage.axes else 1
        while last % width:
            width //= 2
    straight = all(_straight(stage) and not _holds_bytes(stage) for stage in workload.stages)
    return aligned_vector(workload.stages, width) if straight else 1


def _passes_registers(workload: Workload) -> bool:
    """Whether each argument is of halves, and read at one place that nothing but the position decides."""
    places: dict[str, set[Access]] = {}
    for stage in workload.stages:
        if stage.conditional or stage.kind != "injective":
            return False
        for access in (*stage.reads, stage.write):
            if access.argument:
                places.setdefault(access.buffer, set()).add(access)
    accesses = [access for found in places.values() for access in found]
    alone = len(accesses) == len(places)
    return alone and all(a.element_bytes == 2 and len(a.moves[-1]) <= 1 for a in accesses if a.moves)


def _holds_bytes(stage: Stage) -> bool:
    """Whether it reads or writes bytes in memory: TVM takes two for each element of a vector of booleans."""
    return any(a.argument and a.element_bytes == 1 for a in (*stage.reads, stage.write))


def _straight(stage: Stage) -> bool:
    """Whether neighbours along the last axis are neighbours in every buffer, or the same element."""
    accesses = (*stage.reads, stage.write)
    return bool(stage.axes) and all(a.strides[-1] in (0, 1) and not a.data_dependent for a in accesses)


RULE = CudaInjective()
