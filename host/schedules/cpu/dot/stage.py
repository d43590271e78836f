"""Sums of products of bytes, seen as the processor's dot product sees them: four bytes are one element."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from host.lowering.types import numeric_type
from host.schedules.workload import Access, Move, Stage, Workload

# Bytes of one 32-bit lane.
GROUP = 4


def is_dot(stage: Stage) -> bool:
    """Whether the innermost reduction runs over groups of four bytes that lie together in both operands."""
    if stage.kind != "contraction" or len(stage.reduction) < 2 or len(stage.reads) != 2:
        return False
    last = len(stage.axes) - 1
    group = stage.axes[last]
    if not group.reduce or group.extent != GROUP or stage.write.element_bytes != 4:
        return False
    return all(_grouped(access, last) for access in stage.reads)


def _grouped(access: Access, last: int) -> bool:
    if access.element_bytes != 1 or access.strides[last] != 1 or access.shape[-1] % GROUP:
        return False
    return all(move.steps[-1] % GROUP == 0 for moves in access.moves[:last] for move in moves)


@lru_cache(maxsize=8)
def in_lanes(workload: Workload) -> Workload:
    """The workload with its anchor in elements of four bytes and without the loop over them.

    A dot product then counts as one multiply-add of 32-bit lanes, which is what it costs.
    """
    stages = list(workload.stages)
    anchor = stages[workload.anchor]
    stages[workload.anchor] = replace(
        anchor,
        axes=anchor.axes[:-1],
        reads=tuple(_in_lanes(access) for access in anchor.reads),
        write=replace(anchor.write, moves=anchor.write.moves[:-1]),
    )
    return Workload(tuple(stages), workload.anchor)


def _in_lanes(access: Access) -> Access:
    def in_lanes(move: Move) -> Move:
        return replace(move, steps=(*move.steps[:-1], move.steps[-1] // GROUP))

    return replace(
        access,
        type=numeric_type("int32"),
        shape=(*access.shape[:-1], access.shape[-1] // GROUP),
        moves=tuple(tuple(in_lanes(move) for move in moves) for moves in access.moves[:-1]),
    )
