"""Which axis of a reduction does what in a program for a GPU, and what one block of it holds."""

from __future__ import annotations

import math
from dataclasses import dataclass

from host.schedules.api import Decisions
from host.schedules.workload import Access, Stage

# Registers of a thread besides its tile: addresses, loop counters, values that are being loaded.
_OTHER_REGISTERS = 28


@dataclass(frozen=True)
class CudaRoles:
    """The role of each axis of the anchor.

    Attributes:
        column: axis along which neighbouring threads lie; the last spatial one.
        row: the next one outwards with more than one iteration, or None.
        second: the one after that, or None.
        outer: remaining spatial axes; each of their iterations is a block of its own.
        window: reduction axes before the last one.
        depth: the last reduction axis.
    """

    column: int
    row: int | None
    second: int | None
    outer: tuple[int, ...]
    window: tuple[int, ...]
    depth: int


def cuda_roles(stage: Stage) -> CudaRoles | None:
    """Roles of the axes of a stage, or None if it has no spatial or no reduction axis."""
    if not stage.spatial or not stage.reduction:
        return None
    *rest, column = stage.spatial
    long = [axis for axis in reversed(rest) if stage.axes[axis].extent > 1]
    row = long[0] if long else None
    second = long[1] if len(long) > 1 else None
    outer = tuple(axis for axis in rest if axis not in (row, second))
    return CudaRoles(column, row, second, outer, stage.reduction[:-1], stage.reduction[-1])


@dataclass(frozen=True)
class Block:
    """The tile that one block of threads computes.

    Attributes:
        columns, rows, seconds: its extent along the three tiled axes.
        threads: threads of the block.
        sums: sums that each thread holds.
    """

    columns: int
    rows: int
    seconds: int
    threads: int
    sums: int


def block_of(values: Decisions) -> Block:
    """The tile of a block of a program."""
    columns = values["tx"] * values["vx"] * values["cols"]
    rows = values["ty"] * values["vy"] * values["rows"]
    seconds = values["tz"] * values["rows2"]
    threads = values["tx"] * values["ty"] * values["tz"]
    return Block(columns, rows, seconds, threads, columns * rows * seconds // threads)


def staged_tile(stage: Stage, roles: CudaRoles, values: Decisions) -> dict[int, int]:
    """Iterations by axis of what is brought into shared memory at once."""
    block = block_of(values)
    tile = {roles.column: block.columns, roles.depth: values["depth"]}
    if roles.row is not None:
        tile[roles.row] = block.rows
    if roles.second is not None:
        tile[roles.second] = block.seconds
    if values["halo"]:
        tile.update({axis: stage.axes[axis].extent for axis in roles.window})
    return {axis: min(extent, stage.axes[axis].extent) for axis, extent in tile.items()}


def fetch_width(access: Access, region: tuple[int, ...], width: int) -> int:
    """Elements that one thread copies at once, aligned in the buffer and in the copy."""
    return math.gcd(width, math.gcd(region[-1], access.shape[-1]))


def row_pitch(access: Access, region: tuple[int, ...]) -> int:
    """Elements from one row of a copy in shared memory to the next.

    Rows whose length is a multiple of eight banks get four elements more, so that rows do not start in the
    same bank and vectors of four stay aligned. Packed weights are read along their rows only.
    """
    if len(region) < 2 or not needs_pitch(access):
        return region[-1]
    return region[-1] + 4 if region[-1] % 8 == 0 else region[-1]


def needs_pitch(access: Access) -> bool:
    """Whether the reduction runs along the rows of the copy, so that threads read different rows."""
    return access.strides[-1] == 1


def shared_bytes(stage: Stage, roles: CudaRoles, values: Decisions) -> int:
    """Shared memory of one block; at most this, since TVM's bounds of tiles that are not full are wide."""
    if not values["stage"]:
        return 0
    tile = _bound(stage, roles, values)
    total = 0
    for access in stage.reads:
        region = access.region(tile)
        total += math.prod(region[:-1]) * row_pitch(access, region) * access.element_bytes
    return total


def _bound(stage: Stage, roles: CudaRoles, values: Decisions) -> dict[int, int]:
    """The staged tile, where a tile of windows that does not divide its axis counts as all of it."""
    block = block_of(values)
    tile = staged_tile(stage, roles, values)
    for axis, extent in ((roles.row, block.rows), (roles.second, block.seconds)):
        if axis is not None and stage.axes[axis].extent % extent:
            windows = [other for other in stage.reduction if _share_dimension(stage, axis, other)]
            if windows:
                tile[axis] = -(-stage.axes[axis].extent // extent) * extent
            tile.update({other: stage.axes[other].extent for other in windows})
    return tile


def _share_dimension(stage: Stage, first: int, second: int) -> bool:
    """Whether two axes move through one dimension of an operand, as a window over a row does."""
    return any(
        a * b
        for access in stage.reads
        for one in access.moves[first]
        for other in access.moves[second]
        for a, b in zip(one.steps, other.steps, strict=True)
    )


def registers(stage: Stage, values: Decisions) -> int:
    """32-bit registers that a thread wants: its sums, one step of its operands, and the rest."""
    words = max(1, stage.write.element_bytes // 4)
    block = block_of(values)
    columns = values["cols"] * values["vx"]
    rows = values["rows"] * values["vy"] * values["rows2"]
    ahead = min(values["steps"], 4)
    return block.sums * words + (columns + rows) * ahead * words + _OTHER_REGISTERS
