"""Sums of products of bytes, seen as the processor's dot product sees them: four bytes are one element."""

from __future__ import annotations

from dataclasses import replace

from host.schedules.workload import Access, Stage, Workload

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
    if access.element_bytes != 1 or access.strides[last] != 1 or access.elements % GROUP:
        return False
    others = [*access.strides[:last], *(step for _, step in access.block_strides[:last])]
    return all(step % GROUP == 0 for step in others)


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
        write=_without_last(anchor.write),
    )
    return Workload(tuple(stages), workload.anchor)


def _in_lanes(access: Access) -> Access:
    last = len(access.strides) - 1
    return replace(
        _without_last(access),
        elements=access.elements // GROUP,
        element_bytes=GROUP,
        strides=tuple(step // GROUP for step in access.strides[:last]),
        block_strides=tuple((length, step // GROUP) for length, step in access.block_strides[:last]),
    )


def _without_last(access: Access) -> Access:
    # Moves are per byte; none means that a region is the whole buffer, which nothing here asks for.
    return replace(access, strides=access.strides[:-1], block_strides=access.block_strides[:-1], moves=())
