"""Which axis of a reduction does what in a register-blocked program."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from host.schedules.api import Decisions
from host.schedules.cpu.common import contiguous, vector_lanes
from host.schedules.workload import Access, Stage
from targets import HardwareModel

# How a padded input is read: from a padded copy, from the input itself, with the borders peeled off, or from
# a padded copy of what one block reads.
PAD_COPY, PAD_PEEL, PAD_BLOCK = 0, 1, 2
# Rows that each weight is used for from which on fetching it ahead pays.
FETCHING_ROWS = 8


@dataclass(frozen=True)
class Roles:
    """The role of each axis of the anchor.

    Attributes:
        vector: axis along which vectors run.
        lanes: elements of one vector.
        rows: the row axis, with axes of one iteration inside it.
        second: the next spatial axis outwards with more than one iteration, or None.
        outer: remaining spatial axes, outermost first (`second` among them).
        reduction: reduction axes in order.
        groups: vectors along the vector axis, the last one perhaps not full.
        row_total: iterations of the row axis.
        second_total: iterations of the second axis, 1 without one.
        ragged_vectors: whether the last vector is not full.
        depth: iterations of all reduction axes.
    """

    vector: int
    lanes: int
    rows: tuple[int, ...]
    second: int | None
    outer: tuple[int, ...]
    reduction: tuple[int, ...]
    groups: int
    row_total: int
    second_total: int
    ragged_vectors: bool
    depth: int


def roles_of(stage: Stage, hardware: HardwareModel) -> Roles | None:
    """Roles of the axes of a stage, or None if it has no axis to vectorise."""
    key, derived = ("roles", hardware.lanes), stage.derived
    if key not in derived:
        derived[key] = _roles_of(stage, hardware)
    roles: Roles | None = derived[key]
    return roles


def _roles_of(stage: Stage, hardware: HardwareModel) -> Roles | None:
    """The roles follow from the stage and from the lanes of a vector alone."""
    spatial = stage.spatial
    if not spatial or not stage.reduction:
        return None
    vector = spatial[-1]
    if stage.write.strides[vector] != 1 and stage.axes[vector].extent > 1:
        return None
    if not all(contiguous(access, vector) for access in stage.reads):
        return None
    lanes = vector_lanes(stage, vector, hardware)
    rest = list(spatial[:-1])
    rows: list[int] = []
    while rest and all(stage.axes[axis].extent == 1 for axis in rows):
        rows.insert(0, rest.pop())
    second = next((axis for axis in reversed(rest) if stage.axes[axis].extent > 1), None)
    extent = stage.axes[vector].extent
    return Roles(
        vector=vector,
        lanes=lanes,
        rows=tuple(rows),
        second=second,
        outer=tuple(rest),
        reduction=stage.reduction,
        groups=-(-extent // lanes),
        row_total=math.prod(stage.axes[axis].extent for axis in rows),
        second_total=stage.axes[second].extent if second is not None else 1,
        ragged_vectors=extent % lanes != 0,
        depth=math.prod(stage.axes[axis].extent for axis in stage.reduction),
    )


class Counts(NamedTuple):
    """How many tiles a program has along each direction, and in how many blocks they come.

    Attributes:
        panels, tiles, seconds: register tiles along vectors, rows and the second axis.
        panel_blocks, tile_blocks, second_blocks: outermost iterations along the same.
        ragged_rows: whether the last tile of rows is not full.
        peeled: whether the borders of a padded input are peeled off.
    """

    panels: int
    tiles: int
    seconds: int
    panel_blocks: int
    tile_blocks: int
    second_blocks: int
    ragged_rows: bool
    peeled: bool


def counts_of(roles: Roles, values: Decisions) -> Counts:
    """The tile counts of a program."""
    panels = -(-roles.groups // values["vectors"])
    tiles = -(-roles.row_total // values["rows"])
    seconds = -(-roles.second_total // values["rows2"])
    return Counts(
        panels=panels,
        tiles=tiles,
        seconds=seconds,
        panel_blocks=-(-panels // values["panel"]),
        tile_blocks=-(-tiles // values["block"]),
        second_blocks=-(-seconds // values["block2"]),
        ragged_rows=roles.row_total % values["rows"] != 0,
        peeled=values["pad"] == PAD_PEEL,
    )


def tiles_and_blocks(values: Decisions) -> tuple[int, ...]:
    """The decisions that `counts_of` reads: those of the loops around a tile."""
    return (
        values["vectors"],
        values["rows"],
        values["rows2"],
        values["panel"],
        values["block"],
        values["block2"],
        values["pad"] == PAD_PEEL,
    )


def blocks_divide(roles: Roles, values: Decisions) -> bool:
    """Whether the register tiles along each direction are whole blocks."""
    return (
        -(-roles.groups // values["vectors"]) % values["panel"] == 0
        and -(-roles.row_total // values["rows"]) % values["block"] == 0
        and -(-roles.second_total // values["rows2"]) % values["block2"] == 0
    )


def peeled_loops(roles: Roles, counts: Counts) -> frozenset[str]:
    """Which of the outermost loops, "second", "rows" and "vectors", have borders of their own."""
    return _peeled(counts.peeled, counts.ragged_rows, roles.ragged_vectors)


@cache
def _peeled(borders: bool, ragged_rows: bool, ragged_vectors: bool) -> frozenset[str]:
    peeled = {"second": borders, "rows": borders or ragged_rows, "vectors": ragged_vectors}
    return frozenset(name for name, own in peeled.items() if own)


def outer_order(roles: Roles, counts: Counts) -> tuple[str, ...]:
    """The outermost loops, outermost first: peeled ones go inside, so that the others can run in parallel."""
    return _ordered(peeled_loops(roles, counts))


@cache
def _ordered(peeled: frozenset[str]) -> tuple[str, ...]:
    return tuple(sorted(("second", "rows", "vectors"), key=lambda name: name in peeled))


def bands(roles: Roles, counts: Counts, threads: int) -> int:
    """Parts of the second axis that run in parallel where its borders are peeled inside each of them.

    Shared by panels instead, neighbouring lines of memory would be written by different cores, which costs
    more than what a second core gains: a depthwise 112x112x32 took 64 us alone and 170 us on two. Every part
    has several iterations, so that only the first and the last have a border; 1 where there is no such part.
    """
    if threads <= 1 or not counts.peeled or roles.second is None:
        return 1
    parts = [n for n in range(threads, 8 * threads + 1) if counts.second_blocks % n == 0]
    return next((n for n in parts if counts.second_blocks >= 2 * n and n % threads == 0), 1)


def row_bands(anchor: Stage, roles: Roles, counts: Counts, threads: int) -> int:
    """Parts of the rows that run in parallel where their last tile is not full.

    That tile is code of its own, so the loop over rows stays inside, and panels are all that is left to
    share: cores would write neighbouring lines of memory, and each would read all that the others made. With
    parts of the rows a core reads what it made itself, as functions before are shared by rows too. 1 where
    outer axes are enough for all threads, where reading all weights moves more, or without such parts.
    """
    if threads <= 1 or counts.peeled or not counts.ragged_rows:
        return 1
    if outer_iterations(anchor, roles) * counts.second_blocks >= threads:
        return 1
    if lost_by_panels(anchor, roles, threads) <= 0:
        return 1
    parts = (n for n in range(threads, 8 * threads + 1, threads) if counts.tile_blocks % n == 0)
    return next((n for n in parts if counts.tile_blocks >= 2 * n), 1)


def keeps_conditions(anchor: Stage, roles: Roles, counts: Counts, threads: int) -> bool:
    """Whether conditions stay in the innermost loops of bands of rows.

    Where tiles are not full along rows and along vectors, TVM separates them within a band only if its
    blocks are single tiles.
    """
    if not roles.ragged_vectors or counts.tiles == counts.tile_blocks:
        return False
    return row_bands(anchor, roles, counts, threads) > 1


def lost_by_panels(anchor: Stage, roles: Roles, threads: int) -> float:
    """Bytes that a thread moves more between cores if panels are shared among threads, and not rows.

    With panels each thread reads all rows, of which others made their part, and writes lines beside those of
    others. With rows each reads all weights, of which it would read its part with panels.
    """
    weights = rows = 0
    for access in anchor.reads:
        size = access.elements * access.element_bytes
        moves = any(access.uses(axis) for axis in (*roles.rows, *roles.outer))
        rows, weights = (rows + size, weights) if moves else (rows, weights + size)
    others = 1.0 - 1.0 / threads
    return (rows - weights) * others + anchor.write.elements * anchor.write.element_bytes


def outer_iterations(anchor: Stage, roles: Roles) -> int:
    """Iterations of the spatial axes outside of the register tile and its blocks."""
    return math.prod(anchor.axes[axis].extent for axis in roles.outer if axis != roles.second)


def rows_shared(anchor: Stage, roles: Roles, counts: Counts, threads: int) -> int:
    """Iterations of the outermost parallel loops without those over panels."""
    chunks = outer_iterations(anchor, roles) * bands(roles, counts, threads)
    chunks *= row_bands(anchor, roles, counts, threads)
    if not counts.peeled:
        chunks *= counts.second_blocks
        if not counts.ragged_rows:
            chunks *= counts.tile_blocks
    return chunks


def parallel_chunks(anchor: Stage, roles: Roles, counts: Counts, threads: int) -> int:
    """Iterations of the outermost loops that can run in parallel.

    Loops whose borders are peeled become several loops and stay inside the parallel region.
    """
    chunks = rows_shared(anchor, roles, counts, threads)
    return chunks if roles.ragged_vectors else chunks * counts.panel_blocks


def unrolled_window(anchor: Stage, roles: Roles) -> int:
    """Steps of the reduction axes that `window` unrolls: all short ones."""
    last = anchor.axes[roles.reduction[-1]].extent
    return roles.depth if last <= 16 else roles.depth // last


def registers(anchor: Stage, roles: Roles, hardware: HardwareModel, values: Decisions) -> int:
    """Vector registers that the inner loop wants: accumulators, vectors of one operand, a broadcast."""
    per_vector = max(1, roles.lanes // hardware.lanes)
    accumulators = values["vectors"] * values["rows"] * values["rows2"] * per_vector
    # LLVM loads the vectors of all unrolled steps before it uses them.
    operands = min(values["vectors"], 4) * per_vector * values["unroll"] + 1
    if values["window"] and any(access.strides[roles.vector] for access in anchor.reads[:1]):
        # Both operands are vectors (depthwise, pooling): LLVM keeps the whole window in registers.
        operands += unrolled_window(anchor, roles) * per_vector
    return accumulators + operands


def uses_of_weights(anchor: Stage, roles: Roles) -> int:
    """Number of output rows for which each weight is used."""
    return math.prod(anchor.axes[axis].extent for axis in (*roles.rows, *roles.outer))


def weights_level(anchor: Stage, roles: Roles, hardware: HardwareModel) -> int:
    """Index of the memory level from which the weights come.

    Products of few rows are nothing but the way of their weights, which a cache may hold from run to run.
    What more rows hide of that way, and what fetching ahead gains, was fitted with all weights in memory.
    """
    few = uses_of_weights(anchor, roles) < FETCHING_ROWS
    return (hardware.weights_level if few else -1) % len(hardware.levels)


def cold_weights(anchor: Stage, roles: Roles, hardware: HardwareModel) -> Access | None:
    """Weights packed by vectors that all rows read and the first cache level does not hold, or None.

    In a running model they come from afar, also where the second level would hold them: all other weights
    have been read since.
    """
    for access in anchor.reads:
        lanes, step = access.groups[roles.vector]
        packed = lanes == roles.lanes and step == lanes * roles.depth
        shared = not any(access.strides[axis] for axis in (*roles.rows, *roles.outer))
        cold = access.elements * access.element_bytes > hardware.levels[0].size_bytes
        if packed and shared and cold and access.argument and access.element_bytes == 4:
            return access
    return None
