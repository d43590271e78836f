"""Which axis of a reduction does what in a program for a GPU, and what one block of it holds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

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


@lru_cache(maxsize=256)
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


def registers(stage: Stage, values: Decisions) -> int:
    """32-bit registers that a thread wants: its sums, one step of its operands, and the rest."""
    words = max(1, stage.write.element_bytes // 4)
    block = block_of(values)
    columns = values["cols"] * values["vx"]
    rows = values["rows"] * values["vy"] * values["rows2"]
    ahead = min(values["steps"], 4)
    return block.sums * words + (columns + rows) * ahead * words + _OTHER_REGISTERS
