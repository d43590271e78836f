"""The rows along which a task reduces, and what a block of threads keeps of them."""

from __future__ import annotations

import math

from host.schedules.api import Decisions
from host.schedules.workload import Stage, Workload


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
