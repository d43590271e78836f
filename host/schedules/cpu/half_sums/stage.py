"""Sums of blocks of products, and the sums of these, seen as the one sum that they make."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from host.schedules.workload import Access, Stage, Workload

_HALF = "float16"


def sums_blocks(workload: Workload) -> bool:
    """Whether the anchor is sums of blocks of products of halves, and the stage behind it adds these up.

    One operand is the same along the vectors of results, and lies side by side along the sum.
    """
    anchor, after = workload.anchor_stage, workload.stages[workload.anchor + 1 :]
    if anchor.kind != "contraction" or len(anchor.reads) != 2 or len(anchor.reduction) != 1 or not after:
        return False
    if any(access.type.name != _HALF for access in (*anchor.reads, anchor.write)):
        return False
    total = after[0]
    if total.kind != "reduction" or [access.buffer for access in total.reads] != [anchor.write.buffer]:
        return False
    left, columns = anchor.reads[0], len(anchor.axes) - 2
    return not left.uses(columns) and left.strides[-1] == 1 and len(anchor.axes) == len(total.axes) + 1


@lru_cache(maxsize=8)
def as_one_sum(workload: Workload) -> Workload:
    """The workload with one stage in place of both: a sum over the blocks and within them."""
    blocks, total = workload.stages[workload.anchor : workload.anchor + 2]
    outer = len(total.reduction)
    # The stage of blocks has the axes of the blocks in front of those of the results.
    order = [*range(outer, len(blocks.axes) - 1), *range(outer), len(blocks.axes) - 1]

    def moved(access: Access) -> Access:
        return replace(access, moves=tuple(access.moves[axis] for axis in order))

    one = Stage(
        name=total.name,
        axes=(*total.axes, blocks.axes[-1]),
        reads=tuple(moved(access) for access in blocks.reads),
        write=replace(total.write, moves=(*total.write.moves, ())),
        kind="contraction",
        flops_per_point=blocks.flops_per_point,
        expensive=False,
        plain=True,
    )
    stages = (*workload.stages[: workload.anchor], one, *workload.stages[workload.anchor + 2 :])
    return Workload(stages, workload.anchor)
