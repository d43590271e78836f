"""Moves that the rules for GPUs share."""

from __future__ import annotations

from typing import Any

from tvm import s_tir

THREAD_AXES = ("threadIdx.z", "threadIdx.y", "threadIdx.x")


def sizes_up_to(sizes: tuple[int, ...], extent: int) -> tuple[int, ...]:
    """The sizes that an extent does not leave half empty, and the first one."""
    return tuple(size for number, size in enumerate(sizes) if not number or size < 2 * extent)


def bind_flat(schedule: s_tir.Schedule, loops: list[Any], threads: int, vector: int = 1) -> None:
    """Runs a nest of independent loops as one: blocks, threads, and vectors where they divide.

    Args:
        schedule: the schedule.
        loops: all loops of the nest, outermost first.
        threads: threads of a block.
        vector: neighbours that one thread computes; 1 for none. Must divide the innermost loop.
    """
    lanes = None
    if vector > 1:
        *outer, last = loops
        last, lanes = schedule.split(last, [None, vector])
        loops = [*outer, last]
    fused = schedule.fuse(*loops) if len(loops) > 1 else loops[0]
    block, thread = schedule.split(fused, [None, threads])
    schedule.bind(block, "blockIdx.x")
    schedule.bind(thread, "threadIdx.x")
    if lanes is not None:
        schedule.vectorize(lanes)


def copy_together(
    schedule: s_tir.Schedule, copy: Any, dims: int, counts: tuple[int, int, int], vector: int
) -> None:
    """All threads of a block copy a tile into shared memory, neighbours next to each other.

    Args:
        schedule: the schedule.
        copy: the block of the copy, already at its place.
        dims: dimensions of the buffer: the innermost loops around the copy.
        counts: threads along z, y and x.
        vector: elements that one thread copies at once; divides the tile's last dimension.
    """
    loops = list(schedule.get_loops(copy)[-dims:])
    lanes = None
    if vector > 1:
        # Before the loops are fused, so that conditions on a padded input are the same for a whole vector.
        loops[-1], lanes = schedule.split(loops[-1], [None, vector])
    fused = schedule.fuse(*loops) if len(loops) > 1 else loops[0]
    _, *bound = schedule.split(fused, [None, *counts])
    for loop, axis in zip(bound, THREAD_AXES, strict=True):
        schedule.bind(loop, axis)
    if lanes is not None:
        schedule.vectorize(lanes)
