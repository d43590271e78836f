"""The loops of a Winograd convolution: the nest of the result, and where the other stages go in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import s_tir

from host.space.design import Sampler
from host.space.rules.common import fuse_parallel
from host.space.rules.winograd_shape import INPUT, OUTPUT, PRODUCT, WEIGHT, WinogradShape

# Planes of a transformed tensor begin an odd number of cache lines (16 elements) apart, so that the elements
# of one tile do not all fall into the same set.
_PLANE_FACTOR, _PLANE_OFFSET = 32, 16


@dataclass(frozen=True)
class ResultNest:
    """Loops of the result that other stages are placed in.

    Attributes:
        strip: one part of an image, whose input is transformed there; None if all is transformed in advance.
        channels: one group of output channels, where weights go that are transformed in one part.
        block: one block of the result.
        vector: one vector of one tile.
    """

    strip: Any | None
    channels: Any
    block: Any
    vector: Any


def result_nest(sampler: Sampler, shape: WinogradShape, threads: int) -> ResultNest:
    """Splits and orders the loops of the result."""
    schedule = sampler.schedule
    n, h, w, o = schedule.get_loops(schedule.get_sblock(shape.result.name))
    down, row = schedule.split(h, [None, shape.outputs])
    strip, block, inside = schedule.split(down, [None, sampler.sample("span"), sampler.sample("tiles")])
    across, column = schedule.split(w, [None, shape.outputs])
    channels, vector, lane = schedule.split(o, [None, sampler.sample("vectors"), shape.lanes])
    schedule.reorder(n, strip, channels, block, inside, across, vector, row, column, lane)
    schedule.unroll(row)
    schedule.unroll(column)
    schedule.vectorize(lane)
    strips = shape.strips({name: sampler.value(name) for name in ("tiles", "span")})
    groups = shape.blocks // sampler.value("vectors")
    if strips > 1:
        # The loop over channels stays inside: every thread has transformed its own part of the input.
        outer = _parallel(schedule, [n, strip], [shape.batch, strips], threads)
        return ResultNest(outer[-1], channels, block, vector)
    schedule.reorder(channels, n, strip, block)
    extents = [groups, shape.batch, 1, sampler.value("span")]
    outer = _parallel(schedule, [channels, n, strip, block], extents, threads)
    return ResultNest(None, outer[0], outer[-1], vector)


def _parallel(schedule: s_tir.Schedule, loops: list[Any], extents: list[int], threads: int) -> list[Any]:
    """Runs leading loops in parallel, as `fuse_parallel`; the loops that are left."""
    if threads <= 1:
        return loops
    total, count = 1, 0
    while count < len(loops) and total < 8 * threads:
        total *= extents[count]
        count += 1
    if total == 1:
        return loops
    fused = schedule.fuse(*loops[:count]) if count > 1 else loops[0]
    schedule.parallel(fused)
    return [fused, *loops[count:]]


def place_output(schedule: s_tir.Schedule, vector: Any) -> None:
    """Transforms products to results where these are stored."""
    for name in reversed(OUTPUT):
        block = schedule.get_sblock(name)
        schedule.compute_at(block, vector, preserve_unit_loops=True)
        _straight(schedule, block, schedule.get_loops(block)[-4:], name == OUTPUT[0])
        schedule.set_scope(block, 0, "local")


def place_product(sampler: Sampler, shape: WinogradShape, at: Any) -> None:
    """All products of a block of the result; over the parts of the reduction they stay in a buffer."""
    schedule = sampler.schedule
    block = schedule.get_sblock(PRODUCT)
    _set_apart(schedule, block)
    schedule.compute_at(block, at, preserve_unit_loops=True)
    i, j, tiles, channels, depth = schedule.get_loops(block)[-5:]
    tiles, rows = schedule.split(tiles, [None, sampler.sample("rows")])
    vectors, lane = schedule.split(channels, [None, shape.lanes])
    parts, depth = schedule.split(depth, [None, sampler.sample("depth")])
    depth, steps = schedule.split(depth, [None, sampler.sample("unroll")])
    schedule.reorder(parts, i, j, tiles, depth, steps, rows, vectors, lane)
    for loop in (rows, vectors, steps):
        schedule.unroll(loop)
    schedule.vectorize(lane)
    schedule.decompose_reduction(block, parts)


def place_weights(sampler: Sampler, shape: WinogradShape, channels: Any) -> None:
    """Weights are transformed for each part of the reduction of each block, or once if there is one part."""
    schedule = sampler.schedule
    parts = schedule.get_loops(schedule.get_sblock(f"{PRODUCT}_update"))[-9]
    rows, columns = schedule.get_sblock(WEIGHT[1]), schedule.get_sblock(WEIGHT[0])
    _set_apart(schedule, rows)
    whole = sampler.value("depth") == shape.channels_in
    schedule.compute_at(rows, channels if whole else parts, preserve_unit_loops=True)
    i, j, vector, depth, lane = schedule.get_loops(rows)[-5:]
    schedule.reorder(vector, depth, i, j, lane)
    schedule.compute_at(columns, depth, preserve_unit_loops=True)
    for block in (rows, columns):
        i, j, lane = (schedule.get_loops(block)[k] for k in ((-3, -2, -1) if block is rows else (-5, -4, -1)))
        _straight(schedule, block, [i, j, lane], block is columns)
    schedule.set_scope(columns, 0, "local")


def place_input(schedule: s_tir.Schedule, shape: WinogradShape, strip: Any | None, threads: int) -> None:
    """Transforms all of the input in advance, or a strip of it at a time."""
    rows, columns = schedule.get_sblock(INPUT[1]), schedule.get_sblock(INPUT[0])
    _set_apart(schedule, rows)
    if strip is not None:
        schedule.compute_at(rows, strip, preserve_unit_loops=True)
    i, j, tile, channel = schedule.get_loops(rows)[-4:]
    outer, lane = schedule.split(channel, [None, shape.input_lanes])
    schedule.reorder(tile, outer, i, j, lane)
    schedule.compute_at(columns, outer, preserve_unit_loops=True)
    _straight(schedule, rows, [i, j, lane], False)
    _straight(schedule, columns, schedule.get_loops(columns)[-4:], True)
    schedule.set_scope(columns, 0, "local")
    if strip is None:
        extents = [shape.tiles, shape.channels_in // shape.input_lanes]
        fuse_parallel(schedule, [tile, outer], extents, threads)


def copy_padded(schedule: s_tir.Schedule, name: str, lanes: int, threads: int) -> None:
    """A padded copy of the input: rows in parallel, channels in vectors."""
    loops = schedule.get_loops(schedule.get_sblock(name))
    extents = [int(schedule.get(loop).extent) for loop in loops]
    if lanes > 1:
        _, inner = schedule.split(loops[-1], [None, lanes])
        schedule.vectorize(inner)
    fuse_parallel(schedule, loops[:-1], extents[:-1], threads)


def _set_apart(schedule: s_tir.Schedule, block: Any) -> None:
    schedule.storage_align(block, 0, 1, _PLANE_FACTOR, _PLANE_OFFSET)


def _straight(schedule: s_tir.Schedule, block: Any, loops: list[Any], columns: bool) -> None:
    """Writes a transform out: loops over the tile unrolled, the last one in vectors.

    Args:
        schedule: the schedule.
        block: the transform.
        loops: row and column of the tile, other loops of one iteration, the channels of one vector.
        columns: whether the transform is along columns; then each column is finished before the next.
    """
    if columns:
        schedule.reorder(loops[1], loops[0])
    schedule.unroll(loops[0])
    schedule.unroll(loops[1])
    if int(schedule.get(loops[-1]).extent) > 1:
        schedule.vectorize(loops[-1])
