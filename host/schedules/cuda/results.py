"""The results behind an anchor: what later stages make of them, and how many are stored at once."""

from __future__ import annotations

import math

from host.schedules.cuda.sources import in_order, unit
from host.schedules.workload import Access, Stage, Workload


def results_of(workload: Workload, columns: tuple[int, ...], most: int) -> tuple[int, int, Access] | None:
    """Results that are stored at once, the columns of the result, and the result itself.

    None where a later stage mixes results of the anchor, or leaves others than the last columns out.

    Args:
        workload: with the product as its anchor.
        columns: their axes.
        most: results that are stored at once at most, a power of two.
    """
    anchor, column = workload.anchor_stage, columns[-1]
    dims = anchor.spatial
    written = [[move.steps for move in anchor.write.moves[axis]] for axis in dims]
    if dims != tuple(range(len(dims))) or any(
        steps not in ([], [unit(dim, len(dims))]) for dim, steps in enumerate(written)
    ):
        return None
    inside = {anchor.write.buffer: dims}
    last, width = anchor, most
    for stage in workload.stages[workload.anchor + 1 :]:
        if stage.kind != "injective" or not in_order(stage) or last.write.argument:
            return None
        axes = _axes_of(stage, inside)
        if axes is None:
            return None
        inside[stage.write.buffer] = axes
        width = math.gcd(width, most if _in_vectors(stage, axes, column) else 1)
        last = stage
    if not last.write.argument:
        return None
    axes = inside[last.write.buffer]
    extents = {axis: last.axes[number].extent for number, axis in enumerate(axes)}
    cut = [axis for axis in dims if extents.get(axis, 1) != anchor.axes[axis].extent]
    if cut and (cut != [column] or len(columns) > 1):
        return None
    if column not in axes:
        # The first column alone is left.
        return 1, 1, last.write
    place = axes.index(column)
    kept = extents[column] * math.prod(anchor.axes[axis].extent for axis in columns[:-1])
    if last.write.offset(place, 1) != 1:
        return 1, kept, last.write
    pitches = [last.write.offset(axis, 1) for axis in range(len(axes)) if axis != place]
    return math.gcd(width, extents[column], anchor.axes[column].extent, *pitches), kept, last.write


def _axes_of(stage: Stage, inside: dict[str, tuple[int, ...]]) -> tuple[int, ...] | None:
    """The anchor's axis that each axis of a later stage is, -1 for those of one iteration.

    None where the stage reads other results of the anchor than the one in its own place.
    """
    found: dict[int, int] = {}
    read = False
    for access in stage.reads:
        if access.data_dependent:
            return None
        if access.buffer not in inside:
            continue
        read = True
        if any(access.origin):
            return None
        for axis, moves in enumerate(access.moves):
            if not moves:
                continue
            if len(moves) > 1 or [step for _, step in moves[0].moved] != [1]:
                return None
            dim = moves[0].moved[0][0]
            if found.setdefault(axis, inside[access.buffer][dim]) != inside[access.buffer][dim]:
                return None
    long = [axis for axis in range(len(stage.axes)) if stage.axes[axis].extent > 1]
    if not read or any(axis not in found for axis in long):
        return None
    return tuple(found.get(axis, -1) for axis in range(len(stage.axes)))


def _in_vectors(stage: Stage, axes: tuple[int, ...], column: int) -> bool:
    """Whether a stage can compute neighbours along the columns in a vector."""
    if column not in axes or stage.conditional:
        return False
    place = axes.index(column)
    return all(
        access.offset(place, 1) in (0, 1) and len(access.moves[place]) <= 1 and access.type.name != "bool"
        for access in (*stage.reads, stage.write)
    )
