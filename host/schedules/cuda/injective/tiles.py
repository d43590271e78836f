"""The program of a transposition: a block turns a tile of rows and columns in shared memory.

Threads load neighbours along rows of what lies in the inputs' order, and leave them in shared memory. Behind
a barrier they take neighbours along columns from there, load what lies in the output's order, compute, and
store.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import s_tir, tirx

from host.lowering.types import numeric_type
from host.schedules.api import Decisions
from host.schedules.cuda.epilogue import loads, replaced, same_load
from host.schedules.cuda.injective.transposition import Layout, Transposition, layout_of
from host.schedules.cuda.nest import bound, buffer, digits, put_into, sequence
from host.schedules.cuda.vectors import Lanes, turns, under
from host.tensor_ir.structural import mapped


@dataclass(frozen=True)
class Tiles:
    """How a program divides its work.

    Attributes:
        transposition: that it carries out.
        rows, columns: sides of a tile, powers of two.
        fetch: neighbours along rows that a thread loads in a turn.
        vector: neighbours along columns that a thread stores in a turn.
        threads: of a block.
    """

    transposition: Transposition
    rows: int
    columns: int
    fetch: int
    vector: int
    threads: int

    @property
    def down(self) -> int:
        """Tiles along rows."""
        return -(-self.transposition.size(self.transposition.rows) // self.rows)

    @property
    def across(self) -> int:
        """Tiles along columns."""
        return -(-self.transposition.size(self.transposition.columns) // self.columns)

    @property
    def grid(self) -> int:
        """Blocks."""
        return self.down * self.across * self.transposition.size(self.transposition.outer)

    @property
    def loading_turns(self) -> int:
        """Turns in which a thread loads."""
        return self.rows * self.columns // (self.threads * self.fetch)

    @property
    def storing_turns(self) -> int:
        """Turns in which a thread stores."""
        return self.rows * self.columns // (self.threads * self.vector)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block."""
        sizes = (access.element_bytes for access in self.transposition.turned)
        return self.rows * self.columns * sum(sizes)

    def layout(self, size: int) -> Layout | None:
        """Of a tile of elements of so many bytes; None where threads would meet in banks."""
        return layout_of(self.rows, self.columns, self.fetch, self.vector, size)


def tiles_of(transposition: Transposition, values: Decisions) -> Tiles:
    """The tiles that decisions name."""
    sides = values["rows"], values["columns"]
    return Tiles(transposition, *sides, values["fetch"], values["vector"], values["threads"])


@dataclass(frozen=True)
class _Turned:
    """What lies in the inputs' order.

    Attributes:
        load: of an argument.
        tile: shared memory that it passes through.
        layout: of the tile.
    """

    load: Any
    tile: tirx.Buffer
    layout: Layout


class TileProgram:
    """Builds the body of a function that transposes.

    Args:
        tiles: of the program.
        block: of the output, with all other stages inlined.

    Raises:
        ValueError: an input has no layout in shared memory.
    """

    def __init__(self, tiles: Tiles, block: s_tir.SBlock) -> None:
        self._tiles, self._transposition, self._block = tiles, tiles.transposition, block
        self._variables = [axis.var for axis in block.iter_vars]
        self._turned: list[_Turned] = []
        for load in loads(block.body.value):
            if self._is_turned(load) and self._known(load) is None:
                self._turned.append(self._passed(load))
        self._thread, self._number = tirx.Var("thread", "int32"), tirx.Var("block", "int32")

    def put_into(self, schedule: s_tir.Schedule) -> None:
        """Puts the program in the place of everything that the function does."""
        tiles = self._tiles
        loading, storing = Lanes(tiles.fetch, "loading"), Lanes(tiles.vector, "storing")
        body = [
            turns(tiles.loading_turns, lambda turn: self._loaded(turn, loading)),
            tirx.Evaluate(tirx.op.tvm_storage_sync("shared")),
            turns(tiles.storing_turns, lambda turn: self._stored(turn, storing)),
        ]
        memory = [*(one.tile for one in self._turned), *loading.buffers, *storing.buffers]
        region = s_tir.SBlock([], [], [], "turn", sequence(body), None, memory)
        axes = ((self._thread, tiles.threads, "threadIdx.x"), (self._number, tiles.grid, "blockIdx.x"))
        put_into(schedule, bound(s_tir.SBlockRealize([], True, region), axes))

    def _passed(self, load: Any) -> _Turned:
        dtype = str(load.source.dtype)
        layout = self._tiles.layout(numeric_type(dtype).bytes)
        if layout is None:
            raise ValueError(f"no layout of {load.source.name} in shared memory keeps threads apart")
        size = self._tiles.rows * self._tiles.columns
        return _Turned(load, buffer(f"tile{len(self._turned)}", size, dtype, "shared"), layout)

    def _is_turned(self, load: Any) -> bool:
        """Whether neighbours along rows, and not those along columns, lie side by side in memory."""
        row, column = (self._step(load, axes[0]) for axes in self._groups)
        return row == 1 and column not in (0, 1)

    @property
    def _groups(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return self._transposition.rows, self._transposition.columns

    def _step(self, load: Any, axis: int) -> int | None:
        """Elements from the first place of a load to the next one along an axis; None where data decides."""
        places: list[int] = []
        for iteration in (0, 1):
            values = [iteration if number == axis else 0 for number in range(len(self._variables))]
            place: Any = tirx.const(0, "int32")
            for index, extent in zip(load.indices, load.source.shape, strict=True):
                place = place * int(extent) + replaced(index, self._variables, values)
            found = tvm.sym.Analyzer().simplify(place)
            if not isinstance(found, tirx.IntImm):
                return None
            places.append(int(found.value))
        return places[1] - places[0]

    def _known(self, load: Any) -> _Turned | None:
        return next((one for one in self._turned if same_load(one.load, load)), None)

    def _loaded(self, turn: Any, lanes: Lanes) -> tirx.Stmt:
        """A turn of the first part: neighbours along rows to shared memory."""
        tiles = self._tiles
        place = (turn * tiles.threads + self._thread) * tiles.fetch
        row, column = place % tiles.rows, place // tiles.rows
        axes = self._iteration(row, column, (lanes.variable, 0))
        statements, found = lanes.loaded([replaced(one.load, self._variables, axes) for one in self._turned])
        for one, value in zip(self._turned, found, strict=True):
            places = self._places_of(one.layout, row, column)
            statements += lanes.left(one.tile, places, value, one.layout.store)
        return under(statements, self._inside(row, column))

    def _places_of(self, layout: Layout, row: Any, column: Any) -> Callable[[Any], Any]:
        """Where a number of neighbours along rows from one on lie."""
        return lambda first: layout.place(row + first, column)

    def _stored(self, turn: Any, lanes: Lanes) -> tirx.Stmt:
        """A turn of the second part: computes and stores neighbours along columns."""
        tiles, store = self._tiles, self._block.body
        place = (turn * tiles.threads + self._thread) * tiles.vector
        row, column = place // tiles.columns, place % tiles.columns

        def from_tile(load: Any) -> Any:
            one = self._known(load)
            if one is None:
                return load
            return tirx.BufferLoad(one.tile, [one.layout.place(row, column + lanes.variable)])

        axes = self._iteration(row, column, (0, lanes.variable))
        value = mapped(store.value, (tvm.ir.TensorLoad, from_tile))
        statements, (computed,) = lanes.loaded([replaced(value, self._variables, axes)])
        there = [replaced(index, self._variables, axes) for index in store.indices]
        statements += lanes.stored(store.buffer, there, computed)
        return under(statements, self._inside(row, column))

    def _iteration(self, row: Any, column: Any, lanes: tuple[Any, Any]) -> list[Any]:
        """The iteration of each axis of the block at a place of the tile.

        Args:
            row: of the tile.
            column: of the tile.
            lanes: what is added along the innermost axis of rows, and of columns.
        """
        found: list[Any] = [0] * len(self._variables)
        outer = self._number // (self._tiles.down * self._tiles.across)
        extents = self._transposition.extents(self._transposition.outer)
        for axis, iteration in zip(self._transposition.outer, digits(outer, extents), strict=True):
            found[axis] = iteration
        for axes, place, lane in zip(self._groups, self._places(row, column), lanes, strict=True):
            extents = self._transposition.extents(axes)[::-1]
            for axis, iteration in zip(axes[::-1], digits(place, extents), strict=True):
                found[axis] = iteration
            found[axes[0]] = found[axes[0]] + lane
        return found

    def _places(self, row: Any, column: Any) -> tuple[Any, Any]:
        """The number of a row and of a column among all of a matrix."""
        tile = self._number % (self._tiles.down * self._tiles.across)
        down, across = tile // self._tiles.across, tile % self._tiles.across
        return down * self._tiles.rows + row, across * self._tiles.columns + column

    def _inside(self, row: Any, column: Any) -> list[Any]:
        """Conditions under which a place of the tile is one of the matrix."""
        sides = (self._tiles.rows, self._tiles.columns)
        sizes = [self._transposition.size(axes) for axes in self._groups]
        places = self._places(row, column)
        return [place < size for place, size, side in zip(places, sizes, sides, strict=True) if size % side]
