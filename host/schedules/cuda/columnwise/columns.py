"""A reduction of many positions to few results whose neighbours lie side by side, read off its workload."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from host.schedules.cuda.results import results_of
from host.schedules.cuda.sources import CHUNK_BYTES, begins_at
from host.schedules.workload import Stage, Workload

# Fewer positions are summed by one thread each.
_LEAST_STEPS = 8
# Neighbouring columns of a thread at most: those of halves that are 16 bytes.
_MOST_LANES = 8


@dataclass(frozen=True)
class Columns:
    """A reduction as the rule sees it.

    Attributes:
        stage: the anchor.
        column: axis of neighbouring results.
        outer: further spatial axes.
        depth: axes of the reduction.
    """

    stage: Stage
    column: int
    outer: tuple[int, ...]
    depth: tuple[int, ...]

    @property
    def count(self) -> int:
        """Columns."""
        return self.stage.axes[self.column].extent

    @property
    def groups(self) -> int:
        """Results of each column."""
        return math.prod(self.stage.axes[axis].extent for axis in self.outer)

    @property
    def results(self) -> int:
        """All results."""
        return self.count * self.groups

    @property
    def steps(self) -> int:
        """Elements that are combined for one result."""
        return math.prod(self.stage.axes[axis].extent for axis in self.depth)


@lru_cache(maxsize=256)
def columns_of(workload: Workload) -> Columns | None:
    """The reduction that a workload is; None if it is none, or one that reads an element several times.

    All that is reduced has neighbours along the columns, and each of its elements belongs to one result: no
    windows that overlap, and no products of matrices. What does not change along the reduction may be read
    too, such as a mean that is subtracted.
    """
    anchor = workload.anchor_stage
    if anchor.kind not in ("reduction", "contraction") or workload.steps or workload.parts:
        return None
    others = [stage for number, stage in enumerate(workload.stages) if number != workload.anchor]
    if any(stage.kind not in ("injective", "padding") for stage in others):
        return None
    long = [axis for axis in anchor.spatial if anchor.axes[axis].extent > 1]
    if not long:
        return None
    *outer, column = long
    if any(access.data_dependent for access in anchor.reads):
        return None
    reduced = [access for access in anchor.reads if any(map(access.uses, anchor.reduction))]
    if not reduced or any(one.elements < anchor.points or one.offset(column, 1) != 1 for one in reduced):
        return None
    found = Columns(anchor, column, tuple(outer), anchor.reduction)
    results = results_of(workload, (column,), 1)
    if results is None or results[1] != found.count or found.steps < _LEAST_STEPS:
        return None
    return found


@lru_cache(maxsize=256)
def vector_of(workload: Workload) -> int:
    """Neighbouring columns that a thread may take: 1 where what is reduced is not read in vectors.

    All that is read along the columns has neighbours side by side, which are aligned wherever they lie.
    """
    columns = columns_of(workload)
    assert columns is not None, "it is a reduction along columns"
    anchor, width, sizes = columns.stage, math.gcd(_MOST_LANES, columns.count), []
    for stage in workload.stages[: workload.anchor + 1]:
        if stage.kind == "padding" or stage.conditional or not stage.axes:
            return 1
        axis = columns.column if stage is anchor else len(stage.axes) - 1
        for access in stage.reads:
            if access.data_dependent or access.offset(axis, 1) not in (0, 1):
                return 1
            if access.offset(axis, 1) == 1:
                width = begins_at(access, axis, width)
                sizes += [access.element_bytes] if access.argument else []
    return math.gcd(width, CHUNK_BYTES // min(sizes)) if sizes else 1
