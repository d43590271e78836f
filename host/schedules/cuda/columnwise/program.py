"""The program of a reduction along columns.

Lanes of a warp have neighbouring columns, `vector` each, or where there are few of them, several positions of
these. Warps of a block, and `splits` blocks, take positions in turn. What the threads of a block have is
combined in shared memory, what blocks have by a second kernel; both in a fixed order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx

from host.schedules.cuda.columnwise.columns import Columns
from host.schedules.cuda.epilogue import Epilogue, combination
from host.schedules.cuda.nest import bound, buffer, put_into, sequence, unrolled
from host.schedules.cuda.scripts import WARP
from host.schedules.cuda.vectors import Lanes

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
        vector: neighbouring columns of a thread.
    """

    columns: Columns
    warps: int
    splits: int
    vector: int = 1

    @property
    def across(self) -> int:
        """Lanes with different columns, a power of two."""
        return min(WARP, 1 << (-(-self.columns.count // self.vector) - 1).bit_length())

    @property
    def slices(self) -> int:
        """Threads of a block that have the same column."""
        return self.warps * (WARP // self.across)

    @property
    def tiles(self) -> int:
        """Blocks side by side."""
        return -(-self.columns.count // (self.across * self.vector))

    @property
    def grid(self) -> int:
        """Blocks."""
        return self.columns.groups * self.tiles * self.splits

    @property
    def shared_bytes(self) -> int:
        """Of a block: what each thread has of each of its columns."""
        return self.vector * self.cells * self.columns.stage.write.element_bytes

    @property
    def cells(self) -> int:
        """Numbers in shared memory of one of the columns of all threads.

        With room behind them: threads of a warp that combine different columns meet in no bank.
        """
        return (self.slices + (1 if self.vector > 1 else 0)) * self.across

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

    def _combined(self, into: tirx.Buffer, other: Any, place: Any = 0) -> tirx.Stmt:
        return tirx.BufferStore(into, self._kind(tirx.BufferLoad(into, [place]), other), [place])

    def _reduce(self, parts: tirx.Buffer | None) -> tirx.Stmt:
        """The kernel that reduces: it ends with results, or with parts of them."""
        tiles, columns = self._tiles, self._columns
        lane, warp, block = (tirx.Var(name, "int32") for name in ("lane", "warp", "block"))
        split, tile = block % tiles.splits, block // tiles.splits
        group, first = tile // tiles.tiles, tile % tiles.tiles * tiles.across + lane % tiles.across
        own = warp * (WARP // tiles.across) + lane // tiles.across
        lanes = Lanes(tiles.vector, "columns")
        totals, total = buffer("totals", tiles.vector, self._dtype), buffer("total", 1, self._dtype)
        shared = buffer("shared", tiles.vector * tiles.cells, self._dtype, "shared")
        turn = tirx.Var("turn", "int32")
        step = (turn * tiles.splits + split) * tiles.slices + own
        inside = tirx.And(step < columns.steps, first * tiles.vector < columns.count)
        column = first * tiles.vector + lanes.variable
        values = {**self._result(group, column), **_digits(step, columns.depth, columns)}
        loaded, (element,) = lanes.loaded([self._epilogue.in_anchor(self._element, values)])
        added = sequence([*loaded, lanes.each(self._combined(totals, element, lanes.variable))])
        cell = lanes.variable * tiles.cells + own * tiles.across + lane % tiles.across
        place = None if parts is None else (parts, split)
        left = tirx.BufferStore(shared, tirx.BufferLoad(totals, [lanes.variable]), [cell])
        body = sequence(
            [
                lanes.each(tirx.BufferStore(totals, self._identity, [lanes.variable])),
                tirx.For(turn, 0, tiles.turns, tirx.ForKind.SERIAL, tirx.IfThenElse(inside, added, None)),
                lanes.each(left),
                tirx.Evaluate(tirx.op.tvm_storage_sync("shared")),
                self._of_block((shared, total), (own, lane, first), group, place),
            ]
        )
        memory = [totals, total, shared, *lanes.buffers]
        region = s_tir.SBlock([], [], [], "reduce", body, None, memory)
        axes = (
            (lane, WARP, "threadIdx.x"),
            (warp, tiles.warps, "threadIdx.y"),
            (block, tiles.grid, "blockIdx.x"),
        )
        return bound(s_tir.SBlockRealize([], True, region), axes)

    def _of_block(
        self,
        memory: tuple[tirx.Buffer, tirx.Buffer],
        thread: tuple[Any, Any, Any],
        group: Any,
        parts: tuple[tirx.Buffer, Any] | None,
    ) -> tirx.Stmt:
        """Combines what all threads of a column have. Those that share columns take them in turn.

        Args:
            memory: what each thread has of each of its columns, and a register.
            thread: its number among those that share columns, its lane, and that of its columns.
            group: of the results.
            parts: where parts of results go, and the number of the block's; None where these are results.
        """
        tiles, columns, (shared, total), (own, lane, first) = self._tiles, self._columns, memory, thread

        def turn(number: Any) -> tirx.Stmt:
            of_vector, other = number * tiles.slices + own, tirx.Var("other", "int32")
            place = of_vector * tiles.cells + lane % tiles.across
            combined = [tirx.BufferStore(total, tirx.BufferLoad(shared, [place]), [0])]
            if tiles.slices > 1:
                load = tirx.BufferLoad(shared, [place + (other + 1) * tiles.across])
                added = self._combined(total, load)
                combined.append(tirx.For(other, 0, tiles.slices - 1, tirx.ForKind.SERIAL, added))
            ending = self._ended(total, group, first * tiles.vector + of_vector, parts)
            inside = tirx.And(of_vector < tiles.vector, first * tiles.vector < columns.count)
            return tirx.IfThenElse(inside, sequence([*combined, ending]), None)

        return unrolled(-(-tiles.vector // tiles.slices), turn)

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
