"""Attention: a block of rows at a time, whose scores stay in a cache.

Keys and values are packed first. Then each block of rows is computed whole: its scores by register tiles of
`rows` by `vectors` vectors of columns, its softmax row by row, and its products with the values by tiles of
`rows` by `vectors` vectors of their elements. Scores never reach memory. A block has `block` tiles of rows.
With `depth`, all of them take that many values before they go on to the next ones, so that values come from
the first level of the caches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from host.lowering.attention import function as parts
from host.schedules.api import CPU, DecisionKind, Decisions, Level, Rule, Sampler, WordClass
from host.schedules.cpu.attention.cost import CONSTANTS, attention_seconds
from host.schedules.cpu.common import TILE_ROWS, TILE_VECTORS, UNROLLED_STEPS, vectorise
from host.schedules.workload import Stage, Workload
from targets import HardwareModel

_MOST_ROWS, _MOST_VECTORS, _MOST_UNROLLED, _MOST_BLOCK = 14, 8, 4, 256
# Values that tiles take before they go on: fewer do not pay for sums that leave the registers.
_DEPTHS = (48, 512)


class Attention(Rule):
    """A block of rows with all of their scores."""

    name = "attention"
    processor = CPU
    # 4: columns that are added are looked for in the last vector alone.
    version = 4
    priority = 4
    constants = CONSTANTS
    decisions = (
        TILE_VECTORS,
        TILE_ROWS,
        DecisionKind("block", Level.BLOCK, WordClass.TILE),
        UNROLLED_STEPS,
        DecisionKind("depth", Level.BLOCK, WordClass.TILE),
    )

    def matches(self, workload: Workload, hardware: HardwareModel) -> bool:
        """The function of an attention, whose blocks have these names; no other rule takes it."""
        return {parts.KEYS, parts.SCORES, parts.POWERS, parts.MIXED} <= {s.name for s in workload.stages}

    def choices(self, workload: Workload, hardware: HardwareModel) -> Mapping[str, tuple[int, ...]]:
        """Divisors: of rows, of the vectors of columns and of the elements of values, of both depths."""
        scores, mixed = workload.stage(parts.SCORES), workload.stage(parts.MIXED)
        rows = scores.axes[-3].extent
        groups = (scores.axes[-2].extent // lanes_of(scores), mixed.axes[-2].extent // lanes_of(mixed))
        depths = (scores.axes[-1].extent, mixed.axes[-1].extent)
        return {
            "vectors": _divisors(groups, _MOST_VECTORS),
            "rows": _divisors((rows,), _MOST_ROWS),
            "block": _divisors((rows,), _MOST_BLOCK),
            "unroll": _divisors(depths, _MOST_UNROLLED),
            "depth": _depths(depths[1]),
        }

    def legal(self, workload: Workload, hardware: HardwareModel, values: Decisions) -> bool:
        """Tiles make up blocks, and fit the registers with what they are multiplied with."""
        rows, vectors = values["rows"], values["vectors"]
        block, depth = block_rows(values), workload.stage(parts.MIXED).axes[-1].extent
        if block > _MOST_BLOCK or workload.stage(parts.SCORES).axes[-3].extent % block:
            return False
        if values["depth"] % values["unroll"] or depth % values["depth"]:
            return False
        return rows * vectors == 1 or rows * vectors + vectors + 1 <= hardware.vector_registers

    def apply(self, sampler: Sampler, workload: Workload, hardware: HardwareModel, threads: int) -> None:
        """Moves everything but the packing under the loop over blocks of rows, and tiles both products."""
        schedule = sampler.schedule
        names = [stage.name for stage in workload.stages]
        for name in (parts.KEYS, parts.VALUES):
            _copy(schedule, schedule.get_sblock(name), threads)
        scores, mixed = workload.stage(parts.SCORES), workload.stage(parts.MIXED)
        whole = sampler.value("depth") == mixed.axes[-1].extent
        block, element, tile = _tile_result(sampler, mixed)
        depths = {
            mixed.name: _tile_product(sampler, mixed, tile)
            if whole
            else _tile_values(sampler, mixed, element)
        }
        _move_softmax(schedule, names, block)
        if parts.BIAS in names:
            _copy_mask(schedule, workload, block, threads)
        depths[scores.name] = _tile_product(sampler, scores, _tile_scores(sampler, scores))
        if parts.QUERIES in names:
            schedule.compute_at(schedule.get_sblock(parts.QUERIES), block, preserve_unit_loops=True)
        for stage in workload.stages:
            if stage.name.startswith((parts.LARGEST, parts.TOTAL)):
                depths[stage.name] = _vectorise_fold(schedule, stage, hardware.lanes)
        for name in (parts.QUERIES, parts.POWERS, parts.WEIGHTS):
            if name in names:
                # Columns that are added have no weight: the condition is that of the last vector alone.
                loop = schedule.get_loops(schedule.get_sblock(name))[-1]
                vectorise(schedule, loop, lanes_of(scores), conditional=name == parts.POWERS)
        if threads > 1:
            schedule.parallel(block)
        for name, depth in depths.items():
            schedule.decompose_reduction(schedule.get_sblock(name), depth)

    def estimate_s(
        self, workload: Workload, hardware: HardwareModel, threads: int, values: Decisions
    ) -> float:
        """Estimated seconds of one call, see `cost`."""
        return attention_seconds(workload, hardware, threads, values)


def block_rows(values: Decisions) -> int:
    """Rows of scores that a block computes: its tiles times the rows of a tile."""
    return values["block"] * values["rows"]


def lanes_of(product: Stage) -> int:
    """Elements of the vectors of a product: the last dimension of the packed operand."""
    packed = next(access for access in product.reads if access.buffer in (parts.KEYS, parts.VALUES))
    return packed.shape[-1]


def _divisors(extents: tuple[int, ...], most: int) -> tuple[int, ...]:
    """What divides all extents, up to a bound."""
    sizes = range(1, min(*extents, most) + 1)
    return tuple(size for size in sizes if all(extent % size == 0 for extent in extents))


def _copy(schedule: Any, block: Any, threads: int) -> None:
    """Packs an operand: vectors in order, heads and panels in parallel."""
    *outer, _, lane = schedule.get_loops(block)
    schedule.vectorize(lane)
    if threads > 1 and outer:
        schedule.parallel(schedule.fuse(*outer) if len(outer) > 1 else outer[0])


def _copy_mask(schedule: Any, workload: Workload, block: Any, threads: int) -> None:
    """Copies a mask to rows of whole vectors: what a block of rows reads, or all of it before the first one.

    A mask that several heads share is copied once. One with an element for each score is as large as all
    scores, and would come back from memory.
    """
    bias = schedule.get_sblock(parts.BIAS)
    of_block = workload.stage(parts.BIAS).points == workload.stage(parts.MASKED).points
    if of_block:
        schedule.compute_at(bias, block, preserve_unit_loops=True)
    *outer, column = schedule.get_loops(bias)
    vectorise(schedule, column, lanes_of(workload.stage(parts.SCORES)), conditional=True)
    if threads > 1 and outer and not of_block:
        schedule.parallel(schedule.fuse(*outer) if len(outer) > 1 else outer[0])


def _depths(columns: int) -> tuple[int, ...]:
    """The choices of the decision `depth`: divisors of the columns within bounds, and all columns."""
    least, most = _DEPTHS
    divisors = [size for size in range(least, min(most, columns // 2) + 1) if columns % size == 0]
    return (*divisors, columns)


def _tile_result(sampler: Sampler, mixed: Stage) -> tuple[Any, Any, Any]:
    """Tiles the result; returns the loops over blocks of rows, groups of vectors, and register tiles."""
    schedule = sampler.schedule
    *heads, row, element = schedule.get_loops(schedule.get_sblock(parts.OUTPUT))
    block, row, row_tile = schedule.split(row, [None, sampler.sample("block"), sampler.sample("rows")])
    element, vectors, lane = schedule.split(element, [None, sampler.sample("vectors"), lanes_of(mixed)])
    schedule.reorder(*heads, block, element, row, row_tile, vectors, lane)
    schedule.unroll(row_tile)
    schedule.unroll(vectors)
    schedule.vectorize(lane)
    sampler.sample("depth")
    return schedule.fuse(*heads, block) if heads else block, element, row


def _tile_product(sampler: Sampler, stage: Stage, tile: Any) -> Any:
    """Sums a product in registers under the loop over tiles; returns the loop over its depth."""
    schedule = sampler.schedule
    product = schedule.get_sblock(stage.name)
    schedule.compute_at(product, tile, preserve_unit_loops=True)
    schedule.set_scope(product, 0, "local")
    row, element, depth = schedule.get_loops(product)[-3:]
    vectors, lane = schedule.split(element, [None, lanes_of(stage)])
    depth, steps = schedule.split(depth, [None, sampler.sample("unroll")])
    schedule.reorder(depth, steps, row, vectors, lane)
    for loop in (steps, row, vectors):
        schedule.unroll(loop)
    schedule.vectorize(lane)
    return depth


def _tile_values(sampler: Sampler, mixed: Stage, element: Any) -> Any:
    """Sums the products of a block in memory, `depth` values at a time; returns the loop over these parts."""
    schedule = sampler.schedule
    product = schedule.get_sblock(mixed.name)
    schedule.compute_at(product, element, preserve_unit_loops=True)
    schedule.set_scope(product, 0, "local")
    row, lanes, depth = schedule.get_loops(product)[-3:]
    row, row_tile = schedule.split(row, [None, sampler.sample("rows")])
    vectors, lane = schedule.split(lanes, [None, lanes_of(mixed)])
    part, depth, steps = schedule.split(
        depth, [None, sampler.values["depth"] // sampler.values["unroll"], sampler.sample("unroll")]
    )
    schedule.reorder(part, row, depth, steps, row_tile, vectors, lane)
    for loop in (steps, row_tile, vectors):
        schedule.unroll(loop)
    schedule.vectorize(lane)
    return part


def _move_softmax(schedule: Any, names: list[str], block: Any) -> None:
    """Computes softmax in blocks: maximum, powers and partial sums of a row together, and rounded weights."""

    def at(name: str, loop: Any) -> None:
        schedule.compute_at(schedule.get_sblock(name), loop, preserve_unit_loops=True)

    largest = [name for name in names if name.startswith(parts.LARGEST)]
    total = [name for name in names if name.startswith(parts.TOTAL)]
    if parts.WEIGHTS in names:
        # A row is divided by its sum while it is near.
        at(parts.WEIGHTS, block)
        row = schedule.get_loops(schedule.get_sblock(parts.WEIGHTS))[-2]
        for name in (parts.INVERSE, *reversed(total), parts.POWERS, *reversed(largest)):
            at(name, row)
        at(parts.MASKED, block)
        return
    at(parts.INVERSE, block)
    inverse_row = schedule.get_loops(schedule.get_sblock(parts.INVERSE))[-1]
    for name in reversed(total[1:]):
        at(name, inverse_row)
    at(total[0], block)
    at(parts.POWERS, block)
    row = schedule.get_loops(schedule.get_sblock(parts.POWERS))[-2]
    schedule.reverse_compute_at(schedule.get_sblock(total[0]), row, preserve_unit_loops=True)
    for name in reversed(largest):
        at(name, row)
    at(parts.MASKED, block)


def _tile_scores(sampler: Sampler, scores: Stage) -> Any:
    """Tiles the scores, which are scaled and masked in registers; returns the loop over register tiles."""
    schedule = sampler.schedule
    row, column = schedule.get_loops(schedule.get_sblock(parts.MASKED))[-2:]
    row, row_tile = schedule.split(row, [None, sampler.sample("rows")])
    column, vectors, lane = schedule.split(column, [None, sampler.sample("vectors"), lanes_of(scores)])
    schedule.reorder(column, row, row_tile, vectors, lane)
    schedule.unroll(row_tile)
    schedule.unroll(vectors)
    schedule.vectorize(lane)
    return row


def _vectorise_fold(schedule: Any, stage: Stage, lanes: int) -> Any:
    """Combines vectors of a row with one another, or halves of one vector; returns the loop over them."""
    block = schedule.get_sblock(stage.name)
    width, step = schedule.get_loops(block)[-2:]
    extent = int(schedule.get(width).extent)
    schedule.reorder(step, width)
    if extent > lanes:
        vectors, width = schedule.split(width, [None, lanes])
        schedule.unroll(vectors)
    if extent > 1:
        schedule.vectorize(width)
    if stage.axes[-1].extent <= 8:
        schedule.unroll(step)
    return step


RULE = Attention()
