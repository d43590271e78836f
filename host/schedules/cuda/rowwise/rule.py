"""Reductions along rows on a GPU: softmax, layer normalisation, means, norms.

`threads` threads share a row, `rows` rows share a block. A row is read from memory once for each stage that
reads the input; what stages pass to each other stays in shared memory, or is computed again with `inline`.
Sums within a warp are exchanged between registers. Of few long rows, `splits` blocks share one (`long_rows`).
With `vector`, a thread takes so many neighbours at once, up to 16 bytes (`vector_rows`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import s_tir

from host.schedules.api import GPU, DecisionKind, Decisions, Level, Rule, Sampler, WordClass
from host.schedules.cuda.multiprocessor import gpu_of
from host.schedules.cuda.rowwise.cost import cuda_rowwise_seconds
from host.schedules.cuda.rowwise.long_rows import LongRows, split_seconds, splits_of
from host.schedules.cuda.rowwise.rows import (
    inner_row_axis,
    row_axes,
    row_count,
    row_length,
    row_shared_bytes,
)
from host.schedules.cuda.rowwise.vector_rows import MOST_KEPT, VectorRows, kept_elements, vectors_of
from host.schedules.workload import Workload
from targets import HardwareModel

# Rows of a block whose threads take neighbours: they need not fill the last block.
_ROWS_IN_VECTORS = (2, 4, 8, 16, 32, 64, 128, 256)


class CudaRowwise(Rule):
    """Each row is shared by some threads of a block."""

    name = "cuda_rowwise"
    processor = GPU
    version = 4
    priority = 20
    decisions = (
        DecisionKind("threads", Level.BLOCK, WordClass.PARALLEL),
        DecisionKind("rows", Level.REGISTER, WordClass.TILE),
        DecisionKind("inline", Level.REGISTER, WordClass.SWITCH),
        DecisionKind("splits", Level.BLOCK, WordClass.PARALLEL, starts_wide=True),
        DecisionKind("vector", Level.REGISTER, WordClass.TILE, starts_wide=True),
    )

    def matches(self, workload: Workload, hardware: HardwareModel) -> bool:
        """At least one reduction; every stage iterates over the same rows, in the same leading axes."""
        return hardware.gpu is not None and row_axes(workload) is not None

    def choices(self, workload: Workload, hardware: HardwareModel) -> Mapping[str, tuple[int, ...]]:
        """Threads and blocks of a row, rows of a block, what is computed again, elements of a thread."""
        splits, vectors = splits_of(workload, gpu_of(hardware)), vectors_of(workload)
        inner = workload.anchor_stage.axes[inner_row_axis(workload)].extent
        # Rows of a block lie along the innermost of the axes that count rows, and fill the last block.
        rows = {size for size in range(1, min(inner, 256) + 1) if inner % size == 0}
        if len(vectors) > 1:
            rows |= {size for size in _ROWS_IN_VECTORS if size <= row_count(workload)}
        return {
            "threads": (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
            "rows": tuple(sorted(rows)),
            "inline": (0, 1),
            **({"splits": splits} if len(splits) > 1 else {}),
            **({"vector": vectors} if len(vectors) > 1 else {}),
        }

    def legal(self, workload: Workload, hardware: HardwareModel, values: Decisions) -> bool:
        """Threads and shared memory of a block are within the GPU's; no more threads than elements."""
        gpu = gpu_of(hardware)
        block = values["threads"] * values["rows"]
        if block > gpu.threads_per_block:
            return False
        vector = values.get("vector", 1)
        # Rows that do not fill the last block need vectors. They are kept: each legal program then differs in
        # one decision from the smallest one that begins as it does, see `Completions`.
        ragged = workload.anchor_stage.axes[inner_row_axis(workload)].extent % values["rows"]
        if ragged and (vector == 1 or values["inline"]):
            return False
        if values.get("splits", 1) > 1:
            alone = values["rows"] == vector == 1 and not values["inline"]
            return alone and values["threads"] >= gpu.warp
        if values["threads"] * vector >= 2 * row_length(workload) and values["threads"] > gpu.warp:
            return False
        if vector > 1:
            return kept_elements(workload, values) <= MOST_KEPT
        return row_shared_bytes(workload, values) <= gpu.shared_per_block

    def traces(self, values: Decisions) -> bool:
        """A program whose blocks share rows, or whose threads take neighbours, is written as a whole."""
        return values.get("splits", 1) == values.get("vector", 1) == 1

    def apply(self, sampler: Sampler, workload: Workload, hardware: HardwareModel, threads: int) -> None:
        """Moves every stage under the rows of the last one and shares each row among threads."""
        schedule = sampler.schedule
        if sampler.values.get("splits", 1) > 1:
            _sample(sampler, *(kind.name for kind in self.decisions))
            LongRows(schedule, workload, sampler.values).put_into_function()
            return
        rows = row_axes(workload)
        assert rows is not None, "the rule matched before"
        kept = _kept(sampler, workload)
        if sampler.values.get("vector", 1) > 1:
            _sample(sampler, *(kind.name for kind in self.decisions))
            VectorRows(schedule, workload, sampler.values, kept).put_into_function()
            return
        output = schedule.get_sblock(kept[-1])
        *outer, inner = schedule.get_loops(output)[:rows]
        axis = inner_row_axis(workload)
        if axis < rows - 1:
            # Those behind it are of one iteration, and may stand in front of it.
            outer.append(inner)
            inner = outer.pop(axis)
            schedule.reorder(*outer, inner)
        inner, row = schedule.split(inner, [None, sampler.sample("rows")])
        schedule.bind(schedule.fuse(*outer, inner) if outer else inner, "blockIdx.x")
        schedule.bind(row, "threadIdx.y")
        for name in reversed(kept[:-1]):
            block = schedule.get_sblock(name)
            # In this order: a stage in shared memory would be computed for all rows of the block at once.
            schedule.compute_at(block, row)
            schedule.set_scope(block, 0, "shared")
        for name in kept:
            _share_row(sampler, schedule.get_sblock(name))
        _sample(sampler, "inline", "splits", "vector")

    def estimate_s(
        self, workload: Workload, hardware: HardwareModel, threads: int, values: Decisions
    ) -> float:
        """Estimated seconds of one call, see `cost`."""
        if values.get("splits", 1) > 1:
            return split_seconds(workload, values, gpu_of(hardware))
        return cuda_rowwise_seconds(workload, hardware, values)


def _sample(sampler: Sampler, *names: str) -> None:
    """Enters the decisions of these names that the task has into the trace."""
    for name in names:
        if name in sampler.values:
            sampler.sample(name)


def _kept(sampler: Sampler, workload: Workload) -> list[str]:
    """Inlines what is computed where it is read; the names of the other stages."""
    schedule, kept = sampler.schedule, []
    for stage in workload.stages:
        block = schedule.get_sblock(stage.name)
        plain = not stage.reduction and schedule.get_consumers(block)
        if plain and (sampler.value("inline") or not stage.expensive):
            schedule.compute_inline(block)
        else:
            kept.append(stage.name)
    return kept


def _share_row(sampler: Sampler, block: Any) -> None:
    """Spreads the loops of a stage along the row over the threads of a row."""
    schedule: s_tir.Schedule = sampler.schedule
    loops = list(schedule.get_loops(block)[2:])
    if not loops:
        # One result a row: the first thread writes it.
        loops = [schedule.add_unit_loop(block)]
    along = schedule.fuse(*loops) if len(loops) > 1 else loops[0]
    _, thread = schedule.split(along, [None, sampler.sample("threads")])
    schedule.bind(thread, "threadIdx.x")


RULE = CudaRowwise()
