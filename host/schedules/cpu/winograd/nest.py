"""The loops of a Winograd convolution: the nest of the result, and where the other stages go in it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import s_tir

from host.schedules.api import Sampler
from host.schedules.cpu.common import fuse_parallel
from host.schedules.cpu.prefetch import LINE_ELEMENTS, prefetch_in
from host.schedules.cpu.winograd.shape import INPUT, OUTPUT, PRODUCT, WEIGHT, WinogradShape

# Planes of a transformed tensor begin an odd number of cache lines (16 elements) apart, so that the elements
# of one tile do not all fall into the same set.
_PLANE_FACTOR, _PLANE_OFFSET = 32, 16


@dataclass(frozen=True)
class ResultNest:
    """Loops of the result that other stages are placed in.

    Attributes:
        strip: one part of an image, whose input is transformed there; None if all is transformed in advance.
        groups: loops over groups of output channels and then over the blocks of each, with their extents.
        blocks: blocks of one group.
        vector: one vector of one tile.
    """

    strip: Any | None
    groups: tuple[tuple[Any, int], ...]
    blocks: int
    vector: Any


@dataclass(frozen=True)
class ProductNest:
    """Loops around the product of two planes: parts of the reduction, rows and columns of a tile."""

    part: Any
    row: Any
    column: Any


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
    count, span = shape.blocks // sampler.value("vectors"), sampler.value("span")
    if strips > 1:
        # The loop over channels stays inside: every thread transforms its own part of the input.
        outer = _parallel(schedule, [(n, shape.batch), (strip, strips)], threads)
        return ResultNest(outer[-1][0], ((channels, count), (block, span)), span, vector)
    schedule.reorder(channels, n, strip, block)
    order = [(channels, count), (n, shape.batch), (strip, 1), (block, span)]
    return ResultNest(None, tuple(_parallel(schedule, order, threads)), shape.batch * span, vector)


def _parallel(schedule: s_tir.Schedule, loops: list[tuple[Any, int]], threads: int) -> list[tuple[Any, int]]:
    """Runs leading loops in parallel, as `fuse_parallel`; the loops that are left with their extents."""
    if threads <= 1:
        return loops
    total, count = 1, 0
    while count < len(loops) and total < 8 * threads:
        total *= loops[count][1]
        count += 1
    if total == 1:
        return loops
    fused = schedule.fuse(*(loop for loop, _ in loops[:count])) if count > 1 else loops[0][0]
    schedule.parallel(fused)
    return [(fused, total), *loops[count:]]


def place_output(schedule: s_tir.Schedule, nest: ResultNest) -> None:
    """Transforms products to results where these are stored."""
    for name in reversed(OUTPUT):
        block = schedule.get_sblock(name)
        schedule.compute_at(block, nest.vector, preserve_unit_loops=True)
        i, j, _, channel = schedule.get_loops(block)[-4:]
        _straight(schedule, [j, i, channel] if name == OUTPUT[0] else [i, j, channel])
        schedule.set_scope(block, 0, "local")


def place_product(sampler: Sampler, shape: WinogradShape, nest: ResultNest) -> ProductNest:
    """All products of a block of the result; over the parts of the reduction they stay in a buffer."""
    schedule = sampler.schedule
    block = schedule.get_sblock(PRODUCT)
    _set_apart(schedule, block)
    schedule.compute_at(block, nest.groups[-1][0], preserve_unit_loops=True)
    i, j, tiles, channels, depth = schedule.get_loops(block)[-5:]
    tiles, rows = schedule.split(tiles, [None, sampler.sample("rows")])
    vectors, lane = schedule.split(channels, [None, shape.lanes])
    part, depth = schedule.split(depth, [None, sampler.sample("depth")])
    depth, steps = schedule.split(depth, [None, sampler.sample("unroll")])
    schedule.reorder(part, i, j, tiles, depth, steps, rows, vectors, lane)
    for loop in (rows, vectors, steps):
        schedule.unroll(loop)
    schedule.vectorize(lane)
    schedule.decompose_reduction(block, part)
    return ProductNest(part, i, j)


def place_weights(sampler: Sampler, shape: WinogradShape, nest: ResultNest, product: ProductNest) -> None:
    """Weights are transformed for each part of the reduction of each block, or once if there is one part."""
    schedule = sampler.schedule
    rows, columns = schedule.get_sblock(WEIGHT[1]), schedule.get_sblock(WEIGHT[0])
    _set_apart(schedule, rows)
    once = sampler.value("depth") == shape.channels_in
    schedule.compute_at(rows, nest.groups[0][0] if once else product.part, preserve_unit_loops=True)
    i, j, vector, depth, lane = schedule.get_loops(rows)[-5:]
    schedule.reorder(vector, depth, i, j, lane)
    schedule.compute_at(columns, depth, preserve_unit_loops=True)
    _straight(schedule, [i, j, lane])
    i, j, _, _, lane = schedule.get_loops(columns)[-5:]
    _straight(schedule, [j, i, lane])
    schedule.set_scope(columns, 0, "local")


def place_input(schedule: s_tir.Schedule, shape: WinogradShape, nest: ResultNest, threads: int) -> None:
    """Transforms all of the input in advance, or a strip of it at a time."""
    rows, columns = schedule.get_sblock(INPUT[1]), schedule.get_sblock(INPUT[0])
    _set_apart(schedule, rows)
    if nest.strip is not None:
        schedule.compute_at(rows, nest.strip, preserve_unit_loops=True)
    i, j, tile, channel = schedule.get_loops(rows)[-4:]
    outer, lane = schedule.split(channel, [None, shape.input_lanes])
    schedule.reorder(tile, outer, i, j, lane)
    schedule.compute_at(columns, outer, preserve_unit_loops=True)
    _straight(schedule, [i, j, lane])
    i, j, _, channel = schedule.get_loops(columns)[-4:]
    _straight(schedule, [j, i, channel])
    schedule.set_scope(columns, 0, "local")
    if nest.strip is None:
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


def prefetch_weights(sampler: Sampler, shape: WinogradShape, nest: ResultNest, product: ProductNest) -> None:
    """Fetches the weights of the next part, or group where a group has several blocks, during products.

    Weights come from memory: between two runs of a layer, the model reads all of its others. The transform
    alone would wait for them.
    """
    schedule, planes = sampler.schedule, shape.size**2
    weight = schedule.get(schedule.get_sblock(WEIGHT[0])).reads[0].source
    vectors, depth = sampler.value("vectors"), sampler.value("depth")
    parts = shape.channels_in // depth
    place: Any = 0
    for loop, extent in nest.groups:
        place = place * extent + schedule.get(loop).loop_var
    group, block = place // nest.blocks, place % nest.blocks
    part, row, column = (schedule.get(loop).loop_var for loop in (product.part, product.row, product.column))
    plane = row * shape.size + column
    channel = 9 * shape.lanes
    if nest.blocks == 1:
        following = group * parts + part + 1
        group, start = following // parts, following % parts * (depth * channel)
        step, steps, wanted = plane, planes, depth
    else:
        group, start = group + 1, 0
        step, steps = (block * parts + part) * planes + plane, nest.blocks * parts * planes
        wanted = shape.channels_in
    line_elements = LINE_ELEMENTS * 32 // tvm.DataType(str(weight.dtype)).bits
    each = math.ceil(wanted * channel / line_elements)

    def element(line: Any) -> Any:
        vector = group * vectors + line // each
        return vector * (shape.channels_in * channel) + start + line % each * line_elements

    prefetch_in(schedule, product.column, weight, step, vectors * each, steps, element)


def _set_apart(schedule: s_tir.Schedule, block: Any) -> None:
    schedule.storage_align(block, 0, 1, _PLANE_FACTOR, _PLANE_OFFSET)


def _straight(schedule: s_tir.Schedule, loops: list[Any]) -> None:
    """Writes a transform of one vector out.

    Args:
        schedule: the schedule.
        loops: the two over the tile, the one that is transformed inside, and the one over channels.
    """
    outer, inner, channel = loops
    schedule.reorder(outer, inner)
    schedule.unroll(outer)
    schedule.unroll(inner)
    if int(schedule.get(channel).extent) > 1:
        schedule.vectorize(channel)
