"""Moves that several rules share."""

from __future__ import annotations

import math
from typing import Any

from tvm import s_tir

from host.schedules.api import DecisionKind, Level, WordClass
from host.schedules.workload import Access, Stage, Workload
from targets import HardwareModel

# Loop annotation: iterations whose conditions differ become loops of their own (TVM's LoopPartition pass).
PEEL = "pragma_loop_partition_hint"

# Decisions of the rules that keep a tile of sums in registers. More vectors and more rows hide the latency of
# a multiply-add; the third is how many steps of the reduction are written out.
TILE_VECTORS = DecisionKind("vectors", Level.REGISTER, WordClass.TILE, interleaves=True)
TILE_ROWS = DecisionKind("rows", Level.REGISTER, WordClass.TILE, interleaves=True)
UNROLLED_STEPS = DecisionKind("unroll", Level.REGISTER, WordClass.UNROLL)


def divisors(extent: int, most: int) -> tuple[int, ...]:
    """The sizes up to a bound that divide an extent, in increasing order."""
    return tuple(size for size in range(1, min(extent, most) + 1) if extent % size == 0)


def vectorise(schedule: s_tir.Schedule, loop: Any, lanes: int, conditional: bool = False) -> Any | None:
    """Runs a loop in vectors of `lanes`; a remainder becomes a scalar tail.

    Args:
        schedule: the schedule.
        loop: a spatial loop that is contiguous in memory.
        lanes: elements of one vector.
        conditional: the body selects by position along the loop (padding, concatenation), so ranges in
            which the choice is the same are separated.

    Returns:
        The loop over vectors, or None if the loop is too short for one vector.
    """
    extent = int(schedule.get(loop).extent)
    width = lanes
    while width > 1 and extent % width and extent < 2 * width:
        width //= 2
    if width < 2 or extent < width:
        return None
    outer, inner = schedule.split(loop, [None, width])
    schedule.vectorize(inner)
    if extent % width or conditional:
        schedule.annotate(outer, PEEL, 1)
    return outer


def on_elements(workload: Workload, hardware: HardwareModel) -> HardwareModel:
    """The processor as the arithmetic of the anchor sees it: with more lanes where all of it is in halves."""
    if not hardware.half_arithmetic:
        return hardware
    anchor = workload.anchor_stage
    halves = all(access.type.name == "float16" for access in (*anchor.reads, anchor.write))
    return hardware.on_halves() if halves else hardware


def lanes_of(hardware: HardwareModel, element_bytes: int) -> int:
    """Elements of one vector; 1 on a processor without vectors, or whose vectors hold no two of them.

    Elements narrower than four bytes are computed in as many lanes as those of four.
    """
    return max(1, hardware.lanes * 4 // max(4, element_bytes))


def vector_lanes(stage: Stage, axis: int, hardware: HardwareModel) -> int:
    """Elements that one vector operation covers along `axis` of a stage.

    The widest power of two up to the processor's lanes that divides the extent and along which no access
    changes its step. Where that is less than half a vector, a full vector with a scalar remainder.
    """
    extent = stage.axes[axis].extent
    width = max((a.element_bytes for a in (*stage.reads, stage.write)), default=4)
    widest = lanes_of(hardware, width)
    for access in (*stage.reads, stage.write):
        group = access.groups[axis][0]
        if group:
            widest = min(widest, group)
    lanes = widest
    while lanes > 1 and extent % lanes:
        lanes //= 2
    if lanes * 2 < widest:
        while widest > extent:
            widest //= 2
        return max(lanes, widest)
    return lanes


def contiguous(access: Access, axis: int) -> bool:
    """Whether neighbours along the axis are the same element or neighbours in memory."""
    return access.strides[axis] in (0, 1)


def epilogue_names(workload: Workload) -> list[str]:
    """Names of the stages after the anchor."""
    return [stage.name for stage in workload.stages[workload.anchor + 1 :]]


def prologue_names(workload: Workload) -> list[str]:
    """Names of the stages before the anchor."""
    return [stage.name for stage in workload.stages[: workload.anchor]]


def moves_result(workload: Workload) -> bool:
    """Whether what follows the anchor takes its result apart, as it does where blocks of groups are not full.

    Such stages cannot be computed on a tile of the result; they become a pass of their own. Where a group
    has one column, what follows takes every so many columns, in one step.
    """
    anchor = workload.anchor_stage
    made = math.prod(anchor.axes[axis].extent for axis in anchor.spatial)
    return any(
        access.buffer == anchor.write.buffer
        and stage.points < made
        and (any(len(moves) > 1 for moves in access.moves) or _skips_columns(access))
        for stage in workload.stages[workload.anchor + 1 :]
        for access in stage.reads
    )


def _skips_columns(access: Access) -> bool:
    """Whether a stage reads every so many elements of the last dimension, and none between them."""
    steps = [move.steps[-1] for moves in access.moves for move in moves if move.steps[-1]]
    return len(steps) == 1 and steps[0] > 1


def inline_chain(schedule: s_tir.Schedule, names: list[str]) -> list[str]:
    """Inlines every stage that is not an output of the function; returns the names that remain."""
    kept = []
    for name in names:
        block = schedule.get_sblock(name)
        if schedule.get_consumers(block):
            schedule.compute_inline(block)
        else:
            kept.append(name)
    return kept


def fuse_parallel(
    schedule: s_tir.Schedule, loops: list[Any], extents: list[int], threads: int
) -> tuple[Any, int]:
    """Fuses leading loops until every thread has several chunks, and runs them in parallel.

    With one thread nothing is done: a parallel region costs a call even when no other thread shares it.

    Returns:
        The parallel loop, and how many of the loops went into it; (None, 0) where nothing is parallel.
    """
    if threads <= 1:
        return None, 0
    total, count = 1, 0
    for extent in extents:
        if total >= 8 * threads:
            break
        total *= extent
        count += 1
    if count and total > 1:
        fused = schedule.fuse(*loops[:count]) if count > 1 else loops[0]
        schedule.parallel(fused)
        return fused, count
    return None, 0


def schedule_copy(schedule: s_tir.Schedule, name: str, width: int, threads: int) -> None:
    """A copy in advance: rows in parallel, the contiguous axis in vectors of up to `width` elements."""
    loops = schedule.get_loops(schedule.get_sblock(name))
    extents = [int(schedule.get(loop).extent) for loop in loops]
    while width > 1 and extents[-1] % width:
        width //= 2
    if width > 1:
        _, inner = schedule.split(loops[-1], [None, width])
        schedule.vectorize(inner)
    fuse_parallel(schedule, loops[:-1], extents[:-1], threads)


def step_sizes(extent: int, largest: int, wanted: range) -> tuple[int, ...]:
    """Tile sizes up to `largest`: divisors of the extent, or all sizes where no divisor is a wanted one.

    A tile that does not divide leaves a remainder, which becomes code of its own: slower, but much better
    than tiles of one element along a prime number, or than 7 of 49 rows, which leave no registers for a
    second vector.
    """
    bound = min(extent, largest)
    divisors = [size for size in range(1, bound + 1) if extent % size == 0]
    if bound < wanted.start or any(size in wanted for size in divisors):
        return tuple(divisors)
    return tuple(size for size in range(1, bound + 1) if size <= 8 or size in (12, 14, 16))
