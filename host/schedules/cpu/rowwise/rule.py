"""Reductions along rows that lie in contiguous memory: softmax, layer normalisation, means, norms.

All stages of one row are computed before the next row is touched, so a row is read from memory once.
Each reduction keeps `partials` vectors of partial results and folds them at the end of the row.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from tvm import s_tir

from host.schedules.api import CPU, DecisionKind, Decisions, Level, Rule, Sampler, WordClass
from host.schedules.cpu.common import fuse_parallel, vectorise
from host.schedules.cpu.rowwise.cost import rowwise_seconds
from host.schedules.cpu.streams import CONSTANTS
from host.schedules.workload import Stage, Workload
from targets import HardwareModel

# Partial results that are folded one after the other: halving them once more saves nothing.
_SHORTEST_FOLD = 4


class Rowwise(Rule):
    """All stages of a row under the loop over rows of the last one."""

    name = "rowwise"
    processor = CPU
    version = 4
    priority = 40
    constants = CONSTANTS
    decisions = (
        DecisionKind("partials", Level.REGISTER, WordClass.UNROLL, interleaves=True, orders=True),
        DecisionKind("inline", Level.REGISTER, WordClass.SWITCH),
    )

    def matches(self, workload: Workload, hardware: HardwareModel) -> bool:
        """At least one reduction; every stage iterates over the same rows, in the same leading axes."""
        if not any(stage.reduction for stage in workload.stages):
            return False
        rows = _rows(workload)
        return rows is not None and all(_leading(stage) >= rows for stage in workload.stages)

    def choices(self, workload: Workload, hardware: HardwareModel) -> Mapping[str, tuple[int, ...]]:
        """Number of vectors of partial results (0: a plain scalar reduction)."""
        return {"partials": (0, 1, 2, 4), "inline": (0, 1)}

    def legal(self, workload: Workload, hardware: HardwareModel, values: Decisions) -> bool:
        """The partial results of every reduction divide its length, and take more than one step."""
        partials, lanes = values["partials"], _reduction_lanes(workload, hardware)
        return not partials or (lanes > 1 and _steps_of_vectors(workload, lanes * partials))

    def row_of(self, workload: Workload) -> Hashable | None:
        """The extents of each stage along a row."""
        rows = _rows(workload)
        return tuple(
            (stage.kind, tuple(axis.extent for axis in stage.axes[rows:])) for stage in workload.stages
        )

    def apply(self, sampler: Sampler, workload: Workload, hardware: HardwareModel, threads: int) -> None:
        """Moves every stage under the row loop of the last one and vectorises along the row."""
        schedule = sampler.schedule
        rows = _rows(workload)
        assert rows is not None
        lanes = _reduction_lanes(workload, hardware)
        names = [stage.name for stage in workload.stages]
        by_name = {stage.name: stage for stage in workload.stages}
        partial: dict[str, Any] = {}
        folds: dict[str, list[Any]] = {}
        if sampler.value("partials"):
            for name in names:
                if by_name[name].reduction:
                    partial[name] = self._split_reduction(sampler, name, rows, lanes)
                    folds[name] = _split_fold(schedule, name, rows, lanes * sampler.value("partials"), lanes)
        names = self._inline(sampler, names, by_name)
        output = schedule.get_sblock(names[-1])
        row_loops = schedule.get_loops(output)[:rows]
        row = schedule.fuse(*row_loops) if rows > 1 else row_loops[0]
        for name in reversed(names):
            if name != names[-1]:
                schedule.compute_at(schedule.get_sblock(name), row)
            for fold in reversed(folds.get(name, [])):
                schedule.compute_at(fold, row)
            if name in partial:
                schedule.compute_at(partial[name], row)
        fuse_parallel(schedule, [row], [int(schedule.get(row).extent)], threads)
        for name in names:
            stage = by_name[name]
            if name in partial:
                self._vectorise_partials(sampler, partial[name], lanes)
                for fold in folds[name]:
                    _vectorise_fold(schedule, fold)
            elif not stage.reduction and len(stage.axes) > rows:
                self._vectorise_plain(sampler, stage, hardware.lanes)

    @staticmethod
    def _inline(sampler: Sampler, names: list[str], by_name: dict[str, Stage]) -> list[str]:
        schedule = sampler.schedule
        kept = []
        for name in names:
            block = schedule.get_sblock(name)
            consumers = schedule.get_consumers(block)
            # A row with padding around it is written out, so that what reads it has no condition.
            plain = not by_name[name].reduction and by_name[name].kind != "padding"
            if (
                plain
                and consumers
                and not by_name[name].expensive
                and (len(consumers) == 1 or sampler.value("inline"))
            ):
                schedule.compute_inline(block)
            else:
                kept.append(name)
        return kept

    @staticmethod
    def _split_reduction(sampler: Sampler, name: str, rows: int, lanes: int) -> Any:
        """Separates the lanes of a reduction; returns the block of partial results."""
        schedule = sampler.schedule
        loops = schedule.get_loops(schedule.get_sblock(name))
        reduction = loops[rows:]
        fused = schedule.fuse(*reduction) if len(reduction) > 1 else reduction[0]
        _, lane = schedule.split(fused, [None, lanes * sampler.value("partials")])
        return schedule.rfactor(lane, 0)

    @staticmethod
    def _vectorise_partials(sampler: Sampler, block: Any, lanes: int) -> None:
        schedule = sampler.schedule
        loops = schedule.get_loops(block)[-2:]
        width = lanes * sampler.value("partials")
        lane, depth = loops if int(schedule.get(loops[0]).extent) == width else reversed(loops)
        schedule.reorder(depth, lane)
        if sampler.value("partials") > 1:
            vectors, lane = schedule.split(lane, [None, lanes])
            schedule.unroll(vectors)
        schedule.vectorize(lane)
        schedule.decompose_reduction(block, depth)

    @staticmethod
    def _vectorise_plain(sampler: Sampler, stage: Stage, lanes: int) -> None:
        loops = sampler.schedule.get_loops(sampler.schedule.get_sblock(stage.name))
        inner = loops[1:] if len(loops) > 1 else loops
        vectorise(sampler.schedule, inner[-1], lanes, conditional=stage.conditional)

    def estimate_s(
        self, workload: Workload, hardware: HardwareModel, threads: int, values: Decisions
    ) -> float:
        """Estimated seconds of one call, see `cost`."""
        return rowwise_seconds(workload, hardware, threads, values)


def _split_fold(schedule: s_tir.Schedule, name: str, rows: int, width: int, lanes: int) -> list[Any]:
    """Separates the sums of halves: `width` partial results become one vector, and that half of one.

    One after the other they would be a chain of `width` dependent operations.

    Returns:
        The blocks in running order.
    """
    folds = []
    while width > _SHORTEST_FOLD:
        half = lanes if width > lanes else width // 2
        [loop] = schedule.get_loops(schedule.get_sblock(name))[rows:]
        _, inner = schedule.split(loop, [None, half])
        folds.append(schedule.rfactor(inner, 0))
        width = half
    return folds


def _vectorise_fold(schedule: s_tir.Schedule, block: Any) -> None:
    # In the order of the block's axes: the results first.
    lane, step = schedule.get_loops(block)[-2:]
    schedule.reorder(step, lane)
    schedule.vectorize(lane)
    schedule.unroll(step)
    schedule.decompose_reduction(block, step)


def _reduction_lanes(workload: Workload, hardware: HardwareModel) -> int:
    """Elements of one vector of partial results: the widest of which every reduction takes several steps.

    1 if there is none of at least four elements.
    """
    lanes = hardware.lanes
    while lanes >= 4 and not _steps_of_vectors(workload, lanes):
        lanes //= 2
    return lanes if lanes >= 4 else 1


def _steps_of_vectors(workload: Workload, width: int) -> bool:
    """Whether every reduction is two or more steps of `width` elements; one step has nothing to combine."""
    depths = [_depth(stage) for stage in workload.stages if stage.reduction]
    return all(depth % width == 0 and depth >= 2 * width for depth in depths)


def _leading(stage: Stage) -> int:
    """Leading axes that are spatial."""
    count = 0
    for axis in stage.axes:
        if axis.reduce:
            break
        count += 1
    return count


def _depth(stage: Stage) -> int:
    total = 1
    for axis in stage.axes:
        if axis.reduce:
            total *= axis.extent
    return total


def _rows(workload: Workload) -> int | None:
    """Leading axes that all stages share; None if there is none or a reduction keeps others.

    Those of the last stage may be in another order: a transpose that moves whole rows follows.
    """
    reductions = [s for s in workload.stages if s.reduction]
    rows = min(len(s.spatial) for s in reductions)
    if rows == 0 or any(len(s.spatial) != rows for s in reductions):
        return None
    *before, last = (tuple(axis.extent for axis in stage.axes[:rows]) for stage in workload.stages)
    if len(set(before)) > 1:
        return None
    alike = not before or last == before[0]
    return rows if alike or _moves_rows(workload.stages[-1], rows, before[0]) else None


def _moves_rows(last: Stage, rows: int, extents: tuple[int, ...]) -> bool:
    """Whether the leading axes of a stage number, in another order, the rows of what it reads of others."""
    same = sorted(axis.extent for axis in last.axes[:rows]) == sorted(extents)
    made = [access for access in last.reads if not access.argument]
    return same and all(
        access.shape[:rows] == extents
        and not access.data_dependent
        and all(
            (dim < rows) == (axis < rows)
            for axis, moves in enumerate(access.moves)
            for move in moves
            for dim, _ in move.moved
        )
        for access in made
    )


RULE = Rowwise()
