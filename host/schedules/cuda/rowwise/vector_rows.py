"""The program of rows whose threads take neighbours, up to 16 bytes at once.

A thread has `vector` neighbours of a row in each turn. Reductions that do not depend on each other share a
pass over the row. Threads of a warp exchange what they have, warps of a row through shared memory; then every
thread of the row has the result. What is kept of a row's elements stays in registers of the thread that
computed it. Rows need not fill the last block.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import s_tir, tirx

from host.schedules.api import Decisions
from host.schedules.cuda.epilogue import reads
from host.schedules.cuda.nest import bound, buffer, put_into, sequence
from host.schedules.cuda.rowwise.elements import Reduction, element, kind_of, length_of
from host.schedules.cuda.rowwise.rows import reads_own_rows, row_axes, row_count
from host.schedules.cuda.scripts import WARP, is_exchanged, of_other_lane
from host.schedules.cuda.sources import CHUNK_BYTES, aligned_vector
from host.schedules.cuda.vectors import Lanes, turns, under
from host.schedules.workload import Access, Stage, Workload

# Neighbours that a thread takes at most: those of halves that are 16 bytes.
_MOST_LANES = 8
# Elements of a row that a thread keeps at most.
MOST_KEPT = 64


def vectors_of(workload: Workload) -> tuple[int, ...]:
    """Neighbours along a row that a thread may take: one alone where no argument is read in vectors."""
    rows = row_count(workload)
    along = [stage for stage in workload.stages if stage.points > rows]
    plain = all(stage.kind in ("injective", "reduction", "contraction") for stage in workload.stages)
    known = all(is_exchanged(s.write.type.name) for s in workload.stages if s.reduction)
    if not plain or not known or workload.parts or workload.steps or not _stay_in_place(along):
        return (1,)
    # What a thread knows of its row takes the place of any load.
    if not reads_own_rows(workload):
        return (1,)
    side_by_side = [
        access
        for stage in along
        for access in stage.reads
        if access.argument and not access.data_dependent and access.strides[-1] == 1
    ]
    if not side_by_side:
        return (1,)
    most = CHUNK_BYTES // min(access.element_bytes for access in side_by_side)
    width = math.gcd(_MOST_LANES, most, *(stage.axes[-1].extent for stage in along))
    width = aligned_vector(along, width)
    return tuple(size for size in (1, 2, 4, 8) if size <= width)


def _stay_in_place(along: list[Stage]) -> bool:
    """Whether elements of a row that may be kept are read at the place at which they were written."""
    written = {stage.write.buffer: stage for stage in along if stage.expensive and not stage.reduction}
    for stage in along:
        for access in (*stage.reads, stage.write):
            made = written.get(access.buffer)
            if made is not None and not _in_place(access, stage, made):
                return False
    return True


def _in_place(access: Access, stage: Stage, made: Stage) -> bool:
    """Whether a stage accesses the elements of a buffer in the order of its axes, which are its maker's."""
    extents = [tuple(axis.extent for axis in one.axes) for one in (stage, made)]
    if access.data_dependent or any(access.origin) or extents[0] != extents[1]:
        return False
    return extents[0] == access.shape and all(
        all(move.moved == ((axis, 1),) for move in moves) for axis, moves in enumerate(access.moves)
    )


def kept_elements(workload: Workload, values: Decisions) -> int:
    """Elements of a row that a thread keeps in registers."""
    rows, found = row_count(workload), 0
    for stage in workload.stages[:-1]:
        if stage.expensive and not stage.reduction and stage.points > rows and not values["inline"]:
            steps = stage.points // rows // values["vector"]
            found += -(-steps // values["threads"]) * values["vector"]
    return found


def vector_shared_bytes(workload: Workload, values: Decisions) -> int:
    """Shared memory of a block: what the warps of its rows have, where a row has several."""
    warps = values["threads"] // WARP
    sizes = (stage.write.element_bytes for stage in workload.stages if stage.reduction)
    return sum(sizes) * warps * values["rows"] if warps > 1 else 0


class VectorRows:
    """Builds the body of a function whose threads take neighbours along rows.

    Args:
        schedule: of the function.
        workload: of it.
        values: of its decisions.
        names: of the blocks that are left, in order; all others are inlined.

    Raises:
        ValueError: a reduction combines elements in another way than by a sum, a product, or the greatest or
            least.
    """

    def __init__(
        self, schedule: s_tir.Schedule, workload: Workload, values: Decisions, names: list[str]
    ) -> None:
        self._schedule, self._axes, self._rows = schedule, row_axes(workload) or 1, row_count(workload)
        self._threads, self._beside, self._vector = values["threads"], values["rows"], values["vector"]
        self._blocks = [schedule.get(schedule.get_sblock(name)) for name in names]
        self._thread, self._own = tirx.Var("thread", "int32"), tirx.Var("row", "int32")
        self._number = tirx.Var("block", "int32")
        self._memory: list[tirx.Buffer] = []
        # What a thread knows of its row, and the elements that it keeps, by the buffers of the blocks.
        self._known: dict[str, tirx.Buffer] = {}
        self._kept: dict[str, tirx.Buffer] = {}

    def put_into_function(self) -> None:
        """Puts the kernel in the place of everything that the function does."""
        body: list[tirx.Stmt] = []
        waiting: list[Reduction] = []
        for block in self._blocks:
            if waiting and not self._goes_with(block, waiting):
                body += self._reduced(waiting)
                waiting = []
            if block.init is not None:
                waiting.append(Reduction(block, kind_of(block)))
            else:
                body += self._computed(block)
        if waiting:
            body += self._reduced(waiting)
        last = self._blocks[-1]
        if last.init is not None:
            total = tirx.BufferLoad(self._known[last.body.buffer.name], [0])
            _, there = element(last, self._axes, (self._row, 0), {})
            body += self._by_one([tirx.BufferStore(last.body.buffer, total, there)])
        region = s_tir.SBlock([], [], [], "rows", sequence(body), None, self._memory)
        axes = (
            (self._thread, self._threads, "threadIdx.x"),
            (self._own, self._beside, "threadIdx.y"),
            (self._number, -(-self._rows // self._beside), "blockIdx.x"),
        )
        put_into(self._schedule, bound(s_tir.SBlockRealize([], True, region), axes))

    @property
    def _row(self) -> Any:
        """The number of a thread's row; behind the last one it is the last, and not stored again."""
        row = self._number * self._beside + self._own
        return tirx.Min(row, tirx.const(self._rows - 1, "int32")) if self._rows % self._beside else row

    @property
    def _stores(self) -> list[Any]:
        """Conditions under which a thread stores results."""
        row = self._number * self._beside + self._own
        return [row < self._rows] if self._rows % self._beside else []

    def _goes_with(self, block: s_tir.SBlock, others: list[Reduction]) -> bool:
        """Whether a block is a reduction in the same pass over the row as others before it."""
        if block.init is None:
            return False
        extents = [
            [int(axis.dom.extent) for axis in one.iter_vars] for one in (block, *(o.block for o in others))
        ]
        same = all(one == extents[0] for one in extents)
        return same and not any(reads(block.body.value.b, other.result) for other in others)

    def _along(self, block: s_tir.SBlock, body: Any) -> tirx.Stmt:
        """The turns of a thread along a row; `body` gets a turn and the first of its neighbours."""
        steps = length_of(block, self._axes) // self._vector
        # Registers of what is kept are known by number only where turns are written out.
        most = MOST_KEPT if self._kept else 4

        def turn(number: Any) -> tirx.Stmt:
            step = number * self._threads + self._thread
            inside = [step < steps] if steps % self._threads else []
            return under(body(number, step * self._vector), inside)

        return turns(-(-steps // self._threads), turn, most)

    def _at(self, block: s_tir.SBlock, turn: Any, place: Any, lanes: Lanes) -> tuple[Any, list[Any]]:
        """What a block computes at one of neighbouring places, and where it goes."""
        known = {name: tirx.BufferLoad(total, [0]) for name, total in self._known.items()}
        number = turn * self._vector + lanes.variable
        known |= {name: tirx.BufferLoad(registers, [number]) for name, registers in self._kept.items()}
        return element(block, self._axes, (self._row, place), known, lanes.variable)

    def _reduced(self, group: list[Reduction]) -> list[tirx.Stmt]:
        """Reductions in one pass over the row: their results are known to every thread behind it."""
        lanes = self._lanes()
        totals = [self._local(reduction.dtype) for reduction in group]
        pairs = list(zip(group, totals, strict=True))

        def turn(number: Any, place: Any) -> list[tirx.Stmt]:
            values = [self._at(reduction.block, number, place, lanes)[0] for reduction in group]
            statements, found = lanes.loaded(values)
            added = [one.added(total, value) for (one, total), value in zip(pairs, found, strict=True)]
            return [*statements, lanes.each(sequence(added))]

        body = [one.cleared(total) for one, total in pairs]
        body.append(self._along(group[0].block, turn))
        for one, total in pairs:
            body += self._exchanged(one, total)
            self._known[one.result.name] = total
        self._memory += lanes.buffers
        return body

    def _exchanged(self, reduction: Reduction, total: tirx.Buffer) -> list[tirx.Stmt]:
        """Combines what the threads of a row have: all of them end with the result."""
        body: list[tirx.Stmt] = []
        other, lanes = self._local(reduction.dtype), min(self._threads, WARP) // 2
        while lanes:
            # All lanes take part, whatever a comparison of the two then decides.
            exchanged = of_other_lane(tirx.BufferLoad(total, [0]), reduction.dtype, lanes)
            body.append(tirx.BufferStore(other, exchanged, [0]))
            body.append(reduction.added(total, tirx.BufferLoad(other, [0])))
            lanes //= 2
        warps = self._threads // WARP
        if warps <= 1:
            return body
        shared = buffer(f"warps{len(self._memory)}", self._beside * warps, reduction.dtype, "shared")
        self._memory.append(shared)
        first, warp = self._own * warps, tirx.Var("warp", "int32")
        leaves = tirx.BufferStore(shared, tirx.BufferLoad(total, [0]), [first + self._thread // WARP])
        part = reduction.added(total, tirx.BufferLoad(shared, [first + warp]))
        return [
            *body,
            tirx.IfThenElse(tirx.EQ(self._thread % WARP, 0), leaves, None),
            tirx.Evaluate(tirx.op.tvm_storage_sync("shared")),
            reduction.cleared(total),
            tirx.For(warp, 0, warps, tirx.ForKind.SERIAL, part),
        ]

    def _computed(self, block: s_tir.SBlock) -> list[tirx.Stmt]:
        """A block that is no reduction: of the row as a whole, kept along it, or the results."""
        last = block is self._blocks[-1]
        if length_of(block, self._axes) == 1:
            return self._of_row(block, last)
        lanes, target = self._lanes(), block.body.buffer
        if not last:
            steps = length_of(block, self._axes) // self._vector
            count = -(-steps // self._threads) * self._vector
            registers = buffer(f"kept{len(self._memory)}", count, str(target.dtype))
            self._memory.append(registers)

        def turn(number: Any, place: Any) -> list[tirx.Stmt]:
            value, there = self._at(block, number, place, lanes)
            statements, (computed,) = lanes.loaded([value])
            if last:
                return [*statements, under(lanes.stored(target, there, computed), self._stores)]
            kept = tirx.BufferStore(registers, computed, [number * self._vector + lanes.variable])
            return [*statements, lanes.each(kept)]

        if not last:
            self._kept = {**self._kept, target.name: registers}
        body = self._along(block, turn)
        self._memory += lanes.buffers
        return [body]

    def _of_row(self, block: s_tir.SBlock, last: bool) -> list[tirx.Stmt]:
        """What is computed once for a row: by all of its threads, or where it is a result, stored by one."""
        known = {name: tirx.BufferLoad(total, [0]) for name, total in self._known.items()}
        value, there = element(block, self._axes, (self._row, 0), known)
        target = block.body.buffer
        if last:
            return self._by_one([tirx.BufferStore(target, value, there)])
        scalar = self._local(str(target.dtype))
        self._known[target.name] = scalar
        return [tirx.BufferStore(scalar, value, [0])]

    def _by_one(self, statements: list[tirx.Stmt]) -> list[tirx.Stmt]:
        return [under(statements, [tirx.EQ(self._thread, 0), *self._stores])]

    def _lanes(self) -> Lanes:
        return Lanes(self._vector, f"row{len(self._memory)}")

    def _local(self, dtype: str) -> tirx.Buffer:
        found = buffer(f"of_row{len(self._memory)}", 1, dtype)
        self._memory.append(found)
        return found
