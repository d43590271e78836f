"""The program of a reduction along columns.

Lanes of a warp have neighbouring columns, or where there are few of them, several positions of these. Warps
of a block, and `splits` blocks, take positions in turn. What the threads of a block have is combined in
shared memory, what blocks have by a second kernel; both in a fixed order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx

from host.schedules.cuda.columnwise.columns import Columns
from host.schedules.cuda.epilogue import Epilogue, combination
from host.schedules.cuda.nest import bound, buffer, put_into, sequence
from host.schedules.cuda.scripts import WARP

# Kinds of reductions: what combines two parts.
# Warps of a block of the kernel that combines what blocks have.
_JOINING_WARPS = 2


@dataclass(frozen=True)
class ColumnTiles:
    """How a program divides its work.

    Attributes:
        columns: the reduction.
        warps: of a block.
        splits: blocks that share the positions of the same results.
    """

    columns: Columns
    warps: int
    splits: int

    @property
    def across(self) -> int:
        """Lanes with different columns, a power of two."""
        return min(WARP, 1 << (self.columns.count - 1).bit_length())

    @property
    def slices(self) -> int:
        """Threads of a block that have the same column."""
        return self.warps * (WARP // self.across)

    @property
    def tiles(self) -> int:
        """Blocks side by side."""
        return -(-self.columns.count // self.across)

    @property
    def grid(self) -> int:
        """Blocks."""
        return self.columns.groups * self.tiles * self.splits

    @property
    def parts_bytes(self) -> int:
        """What all blocks have of all results."""
        return self.splits * self.columns.results * self.columns.stage.write.element_bytes

    @property
    def turns(self) -> int:
        """Positions of a thread."""
        return -(-self.columns.steps // (self.slices * self.splits))


class Program:
    """Builds the body of the function of one reduction.

    Args:
        tiles: of the program.
        anchor: block of the reduction, with the stages before it inlined.
        epilogue: what is done with the results.

    Raises:
        ValueError: it combines elements in another way than by a sum, a product, or the greatest or least.
    """

    def __init__(self, tiles: ColumnTiles, anchor: s_tir.SBlock, epilogue: Epilogue) -> None:
        self._tiles, self._columns, self._epilogue = tiles, tiles.columns, epilogue
        self._kind, self._element = combination(anchor)
        self._identity, self._dtype = anchor.init.value, str(anchor.body.buffer.dtype)

    def put_into(self, schedule: s_tir.Schedule) -> None:
        """Puts the program in the place of everything that the function does."""
        tiles = self._tiles
        if tiles.splits == 1:
            put_into(schedule, self._reduce(None))
            return
        parts = buffer("parts", tiles.splits * self._columns.results, self._dtype, "global")
        put_into(schedule, sequence([self._reduce(parts), self._join(parts)]), [parts])

    def _combined(self, into: tirx.Buffer, other: Any) -> tirx.Stmt:
        return tirx.BufferStore(into, self._kind(tirx.BufferLoad(into, [0]), other), [0])

    def _reduce(self, parts: tirx.Buffer | None) -> tirx.Stmt:
        """The kernel that reduces: it ends with results, or with parts of them."""
        tiles, columns = self._tiles, self._columns
        lane, warp, block = (tirx.Var(name, "int32") for name in ("lane", "warp", "block"))
        split, tile = block % tiles.splits, block // tiles.splits
        group, column = tile // tiles.tiles, tile % tiles.tiles * tiles.across + lane % tiles.across
        own = warp * (WARP // tiles.across) + lane // tiles.across
        total = buffer("total", 1, self._dtype)
        shared = buffer("shared", tiles.slices * tiles.across, self._dtype, "shared")
        turn = tirx.Var("turn", "int32")
        step = (turn * tiles.splits + split) * tiles.slices + own
        inside = tirx.And(step < columns.steps, column < columns.count)
        values = {**self._result(group, column), **_digits(step, columns.depth, columns)}
        element = self._epilogue.in_anchor(self._element, values)
        added = tirx.IfThenElse(inside, self._combined(total, element), None)
        cell = own * tiles.across + lane % tiles.across
        ending = self._ended(total, group, column, None if parts is None else (parts, split))
        body = sequence(
            [
                tirx.BufferStore(total, self._identity, [0]),
                tirx.For(turn, 0, tiles.turns, tirx.ForKind.SERIAL, added),
                tirx.BufferStore(shared, tirx.BufferLoad(total, [0]), [cell]),
                tirx.Evaluate(tirx.op.tvm_storage_sync("shared")),
                tirx.IfThenElse(
                    tirx.And(tirx.EQ(own, 0), column < columns.count),
                    sequence([*self._of_slices(total, shared, lane), ending]),
                    None,
                ),
            ]
        )
        region = s_tir.SBlock([], [], [], "reduce", body, None, [total, shared])
        axes = (
            (lane, WARP, "threadIdx.x"),
            (warp, tiles.warps, "threadIdx.y"),
            (block, tiles.grid, "blockIdx.x"),
        )
        return bound(s_tir.SBlockRealize([], True, region), axes)

    def _of_slices(self, total: tirx.Buffer, shared: tirx.Buffer, lane: Any) -> list[tirx.Stmt]:
        """Combines what the other threads of a column have with that of its first one."""
        tiles = self._tiles
        if tiles.slices == 1:
            return []
        other = tirx.Var("other", "int32")
        load = tirx.BufferLoad(shared, [(other + 1) * tiles.across + lane % tiles.across])
        return [
            tirx.For(other, 0, tiles.slices - 1, tirx.ForKind.SERIAL, self._combined(total, load)),
        ]

    def _ended(
        self, total: tirx.Buffer, group: Any, column: Any, parts: tuple[tirx.Buffer, Any] | None
    ) -> tirx.Stmt:
        """What becomes of a block's number: a result, or one of the parts of it."""
        value = tirx.BufferLoad(total, [0])
        if parts is None:
            return self._epilogue.store(self._result(group, column), value)
        place, split = parts
        columns = self._columns
        return tirx.BufferStore(place, value, [(split * columns.groups + group) * columns.count + column])

    def _join(self, parts: tirx.Buffer) -> tirx.Stmt:
        """The kernel that combines what blocks have, with a thread for each result."""
        tiles, columns, threads = self._tiles, self._columns, _JOINING_WARPS * WARP
        lane, warp, block = (tirx.Var(f"joining_{name}", "int32") for name in ("lane", "warp", "block"))
        number = block * threads + warp * WARP + lane
        total = buffer("joined", 1, self._dtype)
        split = tirx.Var("split", "int32")
        load = tirx.BufferLoad(parts, [split * columns.results + number])
        group, column = number // columns.count, number % columns.count
        body = sequence(
            [
                tirx.BufferStore(total, self._identity, [0]),
                tirx.For(split, 0, tiles.splits, tirx.ForKind.SERIAL, self._combined(total, load)),
                self._ended(total, group, column, None),
            ]
        )
        body = tirx.IfThenElse(number < columns.results, body, None)
        region = s_tir.SBlock([], [], [], "join", body, None, [total])
        axes = (
            (lane, WARP, "threadIdx.x"),
            (warp, _JOINING_WARPS, "threadIdx.y"),
            (block, -(-columns.results // threads), "blockIdx.x"),
        )
        return bound(s_tir.SBlockRealize([], True, region), axes)

    def _result(self, group: Any, column: Any) -> dict[int, Any]:
        """The iteration of each spatial axis of a result."""
        columns = self._columns
        return {**_digits(group, columns.outer, columns), columns.column: column}


def _digits(number: Any, axes: tuple[int, ...], columns: Columns) -> dict[int, Any]:
    """The iteration of each axis, the last one fastest."""
    found = {}
    for axis in reversed(axes):
        extent = columns.stage.axes[axis].extent
        found[axis] = number % extent if axis != axes[0] else number
        number = number // extent
    return found
