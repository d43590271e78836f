"""The program of few long rows: blocks share a row, with a kernel for each reduction and one for the rest.

A kernel of a reduction leaves in memory what each block has of a row. Those behind it combine this first, in
a fixed order, in every thread. What stands between reductions is computed again where it is read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx

from host.schedules.api import Decisions
from host.schedules.cuda.epilogue import reads
from host.schedules.cuda.multiprocessor import (
    COPY_INSTRUCTIONS,
    LOADS_IN_FLIGHT,
    STREAM_REGISTERS,
    Work,
    bandwidth,
    occupancy,
    waves,
)
from host.schedules.cuda.nest import bound, buffer, put_into, sequence
from host.schedules.cuda.rowwise.elements import Reduction, element, kind_of, length_of
from host.schedules.cuda.rowwise.rows import reads_own_rows, row_axes, row_count, row_length
from host.schedules.workload import Stage, Workload
from targets import GpuModel

# Elements of a row from which on blocks may share it.
_LONG_ROW = 16384
_SPLITS = (1, 2, 4, 8, 16, 32, 64)
# Cycles of a step of a sum in shared memory, with the meeting of the block behind it.
_STEP_CYCLES = 60.0


def splits_of(workload: Workload, gpu: GpuModel) -> tuple[int, ...]:
    """How many blocks may share a row: one, but for rows that are long and few."""
    long = row_length(workload) >= _LONG_ROW and row_count(workload) < gpu.multiprocessors
    last = workload.stages[-1]
    plain = all(stage.kind in ("injective", "reduction", "contraction") for stage in workload.stages)
    if not long or not plain or last.reduction or not last.write.argument:
        return (1,)
    return _SPLITS if reads_own_rows(workload) else (1,)


def split_seconds(workload: Workload, values: Decisions, gpu: GpuModel) -> float:
    """Estimated seconds of one call of a program whose blocks share rows."""
    rows, threads, splits = row_count(workload), values["threads"], values["splits"]
    kernels = [*_reductions(workload), workload.stages[-1]]
    placed = occupancy(gpu, rows * splits, threads, STREAM_REGISTERS, 4 * threads)
    latency = gpu.level("L2").latency_s * gpu.frequency_hz
    scheduled = max(1.0, threads / gpu.warp / gpu.partitions)
    between = sum(max(1.0, stage.flops_per_point) for stage in workload.stages if not stage.reduction)
    seconds = 0.0
    for number, stage in enumerate(kernels):
        turns = math.ceil(stage.points / rows / (threads * splits))
        arithmetic = max(1.0, stage.flops_per_point) + between
        instructions = turns * (COPY_INSTRUCTIONS + arithmetic) * scheduled
        steps = math.log2(threads) * _STEP_CYCLES if stage.reduction else 0.0
        found = number * splits / LOADS_IN_FLIGHT * latency
        alone = max(instructions, turns / LOADS_IN_FLIGHT * latency) + latency + steps + found
        seconds += waves(gpu, placed, Work(instructions + steps / scheduled, alone)) / gpu.frequency_hz
    moved = sum(
        access.elements * access.element_bytes
        for stage in workload.stages
        for access in (*stage.reads, stage.write)
        if access.argument
    )
    resident = min(placed.grid, placed.per_multiprocessor * gpu.multiprocessors) * threads
    streamed = moved / bandwidth(gpu, resident * 4.0 * LOADS_IN_FLIGHT)
    return max(seconds, streamed) + gpu.launch_s + (len(kernels) - 1) * gpu.next_launch_s


def _reductions(workload: Workload) -> list[Stage]:
    return [stage for stage in workload.stages if stage.reduction]


@dataclass(frozen=True)
class _Shared(Reduction):
    """A reduction that blocks share.

    Attributes:
        parts: what blocks have of each row, [rows, splits], flat.
    """

    parts: tirx.Buffer


class LongRows:
    """Builds the body of a function whose blocks share rows.

    Args:
        schedule: of the function.
        workload: of it.
        values: of its decisions.

    Raises:
        ValueError: a reduction combines elements in another way than by a sum, a product, or the greatest or
            least.
    """

    def __init__(self, schedule: s_tir.Schedule, workload: Workload, values: Decisions) -> None:
        self._schedule = schedule
        self._rows, self._axes = row_count(workload), row_axes(workload) or 1
        self._threads, self._splits = values["threads"], values["splits"]
        for stage in workload.stages[:-1]:
            if not stage.reduction:
                schedule.compute_inline(schedule.get_sblock(stage.name))
        self._reductions = [
            self._reduction(stage.name, number) for number, stage in enumerate(_reductions(workload))
        ]
        self._last = schedule.get(schedule.get_sblock(workload.stages[-1].name))

    def put_into_function(self) -> None:
        """Puts the kernels in the place of everything that the function does."""
        kernels = [
            self._reduced(reduction, self._reductions[:number])
            for number, reduction in enumerate(self._reductions)
        ]
        parts = [reduction.parts for reduction in self._reductions]
        put_into(self._schedule, sequence([*kernels, self._ended()]), parts)

    def _reduction(self, name: str, number: int) -> _Shared:
        block = self._schedule.get(self._schedule.get_sblock(name))
        parts = buffer(f"parts{number}", self._rows * self._splits, str(block.body.buffer.dtype), "global")
        return _Shared(block, kind_of(block), parts)

    def _reduced(self, reduction: _Shared, before: list[_Shared]) -> tirx.Stmt:
        """The kernel of a reduction: each block ends with its part of a row."""
        thread, block = tirx.Var("thread", "int32"), tirx.Var("block", "int32")
        row, split = block // self._splits, block % self._splits
        total = buffer("total", 1, reduction.dtype)
        shared = buffer("shared", self._threads, reduction.dtype, "shared")
        known, found = self._known(reduction.block.body.value.b, before, row)

        def step(place: Any) -> tirx.Stmt:
            return reduction.added(total, self._at(reduction.block, row, place, known)[0])

        halves = [self._threads >> n for n in range(1, self._threads.bit_length())]
        body = [
            *found,
            reduction.cleared(total),
            self._along(reduction.block, thread, split, step),
            tirx.BufferStore(shared, tirx.BufferLoad(total, [0]), [thread]),
            *(self._joined(reduction, shared, thread, half) for half in halves),
            tirx.IfThenElse(
                tirx.EQ(thread, 0),
                tirx.BufferStore(reduction.parts, tirx.BufferLoad(shared, [0]), [block]),
                None,
            ),
        ]
        return self._kernel(body, thread, block, [total, shared, *known.values()])

    def _joined(self, reduction: _Shared, shared: tirx.Buffer, thread: Any, half: int) -> tirx.Stmt:
        """The threads of a lower half take what those of the upper one have."""
        other = tirx.BufferLoad(shared, [thread + half])
        return sequence(
            [
                tirx.Evaluate(tirx.op.tvm_storage_sync("shared")),
                tirx.IfThenElse(thread < half, reduction.added(shared, other, thread), None),
            ]
        )

    def _ended(self) -> tirx.Stmt:
        """The kernel of the last stage."""
        thread, block = tirx.Var("ending_thread", "int32"), tirx.Var("ending_block", "int32")
        row, split = block // self._splits, block % self._splits
        known, found = self._known(self._last.body.value, self._reductions, row)

        def step(place: Any) -> tirx.Stmt:
            value, places = self._at(self._last, row, place, known)
            return tirx.BufferStore(self._last.body.buffer, value, places)

        body = [*found, self._along(self._last, thread, split, step)]
        return self._kernel(body, thread, block, list(known.values()))

    def _known(
        self, expression: Any, before: list[_Shared], row: Any
    ) -> tuple[dict[str, tirx.Buffer], list[tirx.Stmt]]:
        """Totals of the reductions that an expression reads, by their results, and what computes them."""
        known: dict[str, tirx.Buffer] = {}
        found: list[tirx.Stmt] = []
        for number, reduction in enumerate(before):
            if not reads(expression, reduction.result):
                continue
            total = known[reduction.result.name] = buffer(f"known{number}", 1, reduction.dtype)
            split = tirx.Var("split", "int32")
            part = tirx.BufferLoad(reduction.parts, [row * self._splits + split])
            added = reduction.added(total, part)
            found += [
                reduction.cleared(total),
                tirx.For(split, 0, self._splits, tirx.ForKind.SERIAL, added),
            ]
        return known, found

    def _along(self, block: s_tir.SBlock, thread: Any, split: Any, step: Any) -> tirx.Stmt:
        """The steps of a block along its row: its threads have neighbours."""
        length = length_of(block, self._axes)
        turns = -(-length // (self._threads * self._splits))
        turn = tirx.Var("turn", "int32")
        place = (turn * self._splits + split) * self._threads + thread
        body = step(place)
        if length % (self._threads * self._splits):
            body = tirx.IfThenElse(place < length, body, None)
        return tirx.For(turn, 0, turns, tirx.ForKind.SERIAL, body)

    def _at(
        self, block: s_tir.SBlock, row: Any, place: Any, known: dict[str, tirx.Buffer]
    ) -> tuple[Any, list[Any]]:
        """What a block computes at a place of a row, with totals in place of results, and where it goes."""
        totals = {name: tirx.BufferLoad(total, [0]) for name, total in known.items()}
        return element(block, self._axes, (row, place), totals)

    def _kernel(
        self, body: list[tirx.Stmt], thread: Any, block: Any, buffers: list[tirx.Buffer]
    ) -> tirx.Stmt:
        region = s_tir.SBlock([], [], [], "kernel", sequence(body), None, buffers)
        axes = ((thread, self._threads, "threadIdx.x"), (block, self._rows * self._splits, "blockIdx.x"))
        return bound(s_tir.SBlockRealize([], True, region), axes)
