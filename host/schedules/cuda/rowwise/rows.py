"""The rows along which a task reduces, and what a block of threads keeps of them."""

from __future__ import annotations

import math

from host.schedules.api import Decisions
from host.schedules.workload import Access, Stage, Workload

# Elements of a row from which on a warp shares it.
_SHARED_STEPS = 32


def row_axes(workload: Workload) -> int | None:
    """Leading axes that all stages share; None if there is none or a reduction keeps others."""
    reductions = [stage for stage in workload.stages if stage.reduction]
    if not reductions:
        return None
    rows = min(len(stage.spatial) for stage in reductions)
    shapes = {tuple(axis.extent for axis in stage.axes[:rows]) for stage in workload.stages}
    same = all(stage.spatial == tuple(range(rows)) for stage in reductions)
    if rows == 0 or len(shapes) != 1 or not same or any(len(s.spatial) < rows for s in workload.stages):
        return None
    return rows


def reads_own_rows(workload: Workload) -> bool:
    """Whether each stage reads of the others what they made of the row that it is at.

    Rows that are as many as what they are counted by may be in another order behind a transpose.
    """
    rows = row_axes(workload) or 0
    made = [access for stage in workload.stages for access in stage.reads if not access.argument]
    return all(_is_of_own_row(access, rows) for access in made)


def _is_of_own_row(access: Access, rows: int) -> bool:
    if access.data_dependent:
        return access.leading >= rows
    if any(access.origin[:rows]):
        return False
    return all(move.moved == ((axis, 1),) for axis in range(rows) for move in access.moves[axis])


def inner_row_axis(workload: Workload) -> int:
    """The innermost axis that counts rows: those behind it are of one iteration."""
    rows = row_axes(workload) or 1
    axes = workload.anchor_stage.axes[:rows]
    return max((number for number, axis in enumerate(axes) if axis.extent > 1), default=rows - 1)


def of_few_rows(workload: Workload, most: int) -> bool:
    """Whether threads should share rows: a thread for each row would leave the processor idle.

    The elements of a row follow one another in memory, and belong to no other row. Some of a row that is read
    as whole vectors are read twice (`host.lowering.expressions.whole_vectors`).

    Args:
        workload: a reduction.
        most: rows from which on there are enough of them.
    """
    if row_axes(workload) is None or row_count(workload) >= most:
        return False
    anchor = workload.anchor_stage
    if row_count(workload) == 1:
        return True
    if not anchor.reduction or any(access.data_dependent for access in anchor.reads):
        return False
    reduced = [access for access in anchor.reads if any(map(access.uses, anchor.reduction))]
    steps = math.prod(anchor.axes[axis].extent for axis in anchor.reduction)
    apart = all(3 * access.elements >= 2 * anchor.points for access in reduced)
    follow = all(access.offset(anchor.reduction[-1], 1) == 1 for access in reduced)
    return steps >= _SHARED_STEPS and apart and follow


def row_count(workload: Workload) -> int:
    """Rows of the whole tensor."""
    rows = row_axes(workload) or 0
    return math.prod(axis.extent for axis in workload.anchor_stage.axes[:rows])


def row_length(workload: Workload) -> int:
    """Iterations of the longest stage along one row."""
    return max(stage.points for stage in workload.stages) // max(1, row_count(workload))


def row_shared_bytes(workload: Workload, values: Decisions) -> int:
    """Shared memory of a block: what stages pass on, and the partial sums of more than one warp."""
    total = 0
    rows = row_count(workload)
    for stage in workload.stages[:-1]:
        if stage.reduction or (stage.expensive and not values["inline"]):
            total += stage.write.elements // rows * stage.write.element_bytes * values["rows"]
        if stage.reduction:
            total += 4 * values["threads"] * values["rows"]
    return total


def row_passes(workload: Workload, values: Decisions) -> list[Stage]:
    """Stages that run along the row: all but those that are computed where they are read."""
    return [
        stage
        for position, stage in enumerate(workload.stages)
        if stage.reduction
        or position == len(workload.stages) - 1
        or (stage.expensive and not values["inline"])
    ]
