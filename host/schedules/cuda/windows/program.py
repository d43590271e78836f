"""The program of pooling.

A thread computes some neighbouring channels of a few results. It loads what their windows read of the image
by vectors, each once; it first combines the places of a row, and that with each result that reads the row.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from host.schedules.cuda.epilogue import Epilogue, combination, loads
from host.schedules.cuda.image_windows import Side
from host.schedules.cuda.nest import bound, buffer, digits, put_into, sequence
from host.schedules.cuda.vectors import Lanes, under
from host.schedules.cuda.windows.tiles import Tiling
from host.tensor_ir.structural import mapped

_CONDITION = "prim.if_then_else"


class Program:
    """Builds the body of the function of one pooling.

    Args:
        tiling: of the program.
        anchor: block of the reduction, with the stages before it inlined.
        epilogue: what is done with the results.

    Raises:
        ValueError: it combines elements in another way than by a sum, a product, or the greatest or least.
    """

    def __init__(self, tiling: Tiling, anchor: s_tir.SBlock, epilogue: Epilogue) -> None:
        self._tiling, self._pool, self._epilogue = tiling, tiling.window, epilogue
        pool = tiling.window
        self._kind, element = combination(anchor)
        self._identity, dtype = anchor.init.value, str(anchor.body.buffer.dtype)
        self._conditions, self._fill, self._element = _apart(element)
        (self._load,) = loads(self._element)
        self._thread, self._block = (tirx.Var(name, "int32") for name in ("thread", "block"))
        self._lanes = Lanes(tiling.width, "pool")
        vectors = pool.channels // tiling.width
        extents = [pool.stage.axes[axis].extent for axis in pool.outer]
        sides = [
            -(-side.extent // tile)
            for side, tile in ((pool.rows, tiling.rows), (pool.columns, tiling.columns))
        ]
        self._number = self._block * tiling.threads + self._thread
        *outer, row, column, vector = digits(self._number, [*extents, *sides, vectors])
        self._outer = dict(zip(pool.outer, outer, strict=True))
        self._row, self._column = row * tiling.rows, column * tiling.columns
        self._channel = vector * tiling.width + self._lanes.variable
        self._image = buffer("image", tiling.column_places * tiling.width, str(self._load.source.dtype))
        self._along = buffer("along", tiling.columns * tiling.width, dtype)
        self._sums = buffer("results", tiling.results * tiling.width, dtype)

    def put_into(self, schedule: s_tir.Schedule) -> None:
        """Puts the program in the place of everything that the function does."""
        tiling = self._tiling
        inside = [self._number < tiling.total] if tiling.total % tiling.threads else []
        body = under([*self._begin(), *self._combine(), *self._end()], inside)
        memory = [self._image, self._along, self._sums, *self._lanes.buffers]
        block = s_tir.SBlock([], [], [], "pool", body, None, memory)
        axes = ((self._thread, tiling.threads, "threadIdx.x"), (self._block, tiling.grid, "blockIdx.x"))
        put_into(schedule, bound(s_tir.SBlockRealize([], True, block), axes))

    def _begin(self) -> list[tirx.Stmt]:
        stores = [self._store(self._sums, n, self._identity) for n in range(self._tiling.results)]
        return [self._lanes.each(sequence(stores))]

    def _store(self, into: tirx.Buffer, number: int, value: Any) -> tirx.Stmt:
        return tirx.BufferStore(into, value, [self._place(number)])

    def _place(self, number: int) -> Any:
        """Where the neighbours of one result, or of one place of the image, are in registers."""
        return number * self._tiling.width + self._lanes.variable

    def _combine(self) -> list[tirx.Stmt]:
        side, tiling = self._pool.rows, self._tiling
        if tiling.loops:
            tap = tirx.Var("tap", "int32")
            body = sequence(self._row_of(self._row, tap, [0]))
            return [tirx.For(tap, 0, side.taps, tirx.ForKind.SERIAL, body)]
        found: list[tirx.Stmt] = []
        for place, result, tap in side.places(tiling.rows):
            found += self._row_of(self._row + result, tap, _readers(side, tiling.rows, place))
        return found

    def _row_of(self, row: Any, tap: Any, readers: list[int]) -> list[tirx.Stmt]:
        """Loads a row of the image, and combines it with the results of the rows that read it.

        Args:
            row: of results, the first that reads it.
            tap: by which it does.
            readers: numbers of all rows of the tile that do.
        """
        side, tiling = self._pool.columns, self._tiling
        statements, numbers = [], {}
        for number, (place, result, of_column) in enumerate(side.places(tiling.columns)):
            statements.append(self._loaded(number, (row, tap), (self._column + result, of_column)))
            numbers[place] = number
        combined: list[tirx.Stmt] = []
        for column in range(tiling.columns):
            places = [numbers[column * side.stride + one * side.distance] for one in range(side.taps)]
            combined.append(self._store(self._along, column, self._value(places[0])))
            combined += [self._added(self._along, column, self._value(one)) for one in places[1:]]
            along = tirx.BufferLoad(self._along, [self._place(column)])
            combined += [
                self._added(self._sums, reader * tiling.columns + column, along) for reader in readers
            ]
        return [*statements, self._lanes.each(sequence(combined))]

    def _added(self, into: tirx.Buffer, number: int, other: Any) -> tirx.Stmt:
        return self._store(into, number, self._kind(tirx.BufferLoad(into, [self._place(number)]), other))

    def _value(self, number: int) -> Any:
        """An element of a place of the image that was loaded."""
        loaded = tirx.BufferLoad(self._image, [self._place(number)])
        return mapped(self._element, (tvm.ir.TensorLoad, lambda _: loaded))

    def _loaded(self, number: int, row: tuple[Any, Any], column: tuple[Any, int]) -> tirx.Stmt:
        """Loads neighbouring channels of one place of the image, or fills them up."""
        pool, lanes, epilogue = self._pool, self._lanes, self._epilogue
        values = {**self._outer, pool.channel: self._channel}
        conditions: list[Any] = []
        parts = ((pool.rows, row, self._tiling.rows), (pool.columns, column, self._tiling.columns))
        for side, (result, tap), tile in parts:
            if side.axis is not None:
                values[side.axis] = result
                conditions += [result < side.extent] if side.extent % tile else []
            if side.tap is not None:
                values[side.tap] = tap
        conditions += [epilogue.in_anchor(one, values) for one in self._conditions]
        load = epilogue.in_anchor(self._load, values)
        first = number * self._tiling.width
        read = sequence(lanes.moved((self._image, first), (load.source, load.indices)))
        if not conditions:
            return read
        fill = lanes.each(tirx.BufferStore(self._image, self._filled(), [first + lanes.variable]))
        return tirx.IfThenElse(_all(conditions), read, fill)

    def _filled(self) -> Any:
        """What surrounds an image; anything of results that there are not."""
        dtype = str(self._image.dtype)
        return tirx.const(self._fill if self._fill is not None else 0, dtype)

    def _end(self) -> list[tirx.Stmt]:
        """Computes and stores what becomes of the results, neighbouring channels at once."""
        pool, tiling, found = self._pool, self._tiling, []
        for row in range(tiling.rows):
            for column in range(tiling.columns):
                values = {**self._outer, pool.channel: self._channel}
                conditions: list[Any] = []
                for side, place, tile in (
                    (pool.rows, self._row + row, tiling.rows),
                    (pool.columns, self._column + column, tiling.columns),
                ):
                    if side.axis is not None:
                        values[side.axis] = place
                        conditions += [place < side.extent] if side.extent % tile else []
                own = tirx.BufferLoad(self._sums, [self._place(row * tiling.columns + column)])
                memory, computed, places = self._epilogue.end(values, own)
                statements, (value,) = self._lanes.loaded([computed])
                found.append(under([*statements, *self._lanes.stored(memory, places, value)], conditions))
        return found


def _apart(element: Any) -> tuple[list[Any], float | int | None, Any]:
    """The conditions under which an element is read, what it is otherwise, and it where they hold."""
    calls: list[Any] = []
    tvm_ffi.structural_walk(element, (tvm.ir.Call, calls.append), order="post")
    choices = [call for call in calls if getattr(call.op, "name", "") == _CONDITION]
    if not choices:
        return [], None, element
    (choice,) = choices
    read = mapped(element, (tvm.ir.Call, lambda call: call.args[1] if call.same_as(choice) else call))
    return [choice.args[0]], choice.args[2].value, read


def _readers(side: Side, tile: int, place: int) -> list[int]:
    """The results of a tile whose windows read a place of the image."""
    found = []
    for number in range(tile):
        tap, rest = divmod(place - number * side.stride, side.distance)
        if rest == 0 and 0 <= tap < side.taps:
            found.append(number)
    return found


def _all(conditions: list[Any]) -> Any:
    first, *others = conditions
    for other in others:
        first = tirx.And(first, other)
    return first
