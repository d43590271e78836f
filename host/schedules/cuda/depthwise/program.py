"""The program of a convolution of each channel by itself.

A thread computes some neighbouring channels of a few results. It loads what they read of the image by
vectors, each once, and needs no other thread: neighbours of the image are found in the first-level cache.
"""

from __future__ import annotations

from typing import Any

from tvm import s_tir, tirx

from host.schedules.cuda.depthwise import instructions as cuda
from host.schedules.cuda.depthwise.tiles import Tiling
from host.schedules.cuda.depthwise.window import DOT, Window
from host.schedules.cuda.epilogue import Element, Epilogue
from host.schedules.cuda.image_windows import Side
from host.schedules.cuda.nest import bound, buffer, put_into, sequence

# A place along one direction of the image: the result that reads it, the tap, and whether that result is one.
_Place = tuple[Any, int, Any]


class Program:
    """Builds the body of the function of one convolution."""

    def __init__(self, tiling: Tiling, image: Element, weights: Element, epilogue: Epilogue) -> None:
        """Numbers the threads.

        Args:
            tiling: of the program.
            image: an element of the image.
            weights: an element of the weights.
            epilogue: what is done with the results.
        """
        self._tiling, self._image, self._weights, self._epilogue = tiling, image, weights, epilogue
        self._window: Window = tiling.window
        window = self._window
        self._thread, self._block = (tirx.Var(name, "int32") for name in ("thread", "block"))
        number = self._number = self._block * tiling.threads + self._thread
        vectors = window.channels // tiling.width
        self._channel = number % vectors * tiling.width
        number = number // vectors
        self._column, number = self._part(number, window.columns, tiling.columns)
        self._row, number = self._part(number, window.rows, tiling.rows)
        self._outer = self._digits(number)
        self._words = buffer("image", tiling.image_words, "uint32")
        self._weight_words = buffer("weights", tiling.weight_words, "uint32")
        self._sums = buffer("sums", tiling.results * tiling.width, "int32" if window.bytes else "float32")
        self._halves = buffer("halves", tiling.results * tiling.words, "uint32")
        self._results = buffer("results", tiling.width, window.result.type.name)

    @staticmethod
    def _part(number: Any, side: Side, tile: int) -> tuple[Any, Any]:
        """Where a thread's tile begins along one direction, and what is left of its number."""
        tiles = -(-side.extent // tile)
        return number % tiles * tile, number // tiles

    def _digits(self, number: Any) -> dict[int, Any]:
        """The iteration of the outer axes, the last one fastest."""
        found = {}
        for axis in reversed(self._window.outer):
            extent = self._window.stage.axes[axis].extent
            if extent > 1:
                found[axis], number = number % extent, number // extent
        return found

    def put_into(self, schedule: s_tir.Schedule) -> None:
        """Puts the program in the place of everything that the function does."""
        buffers = [self._words, self._weight_words, self._sums, self._results]
        if self._in_halves:
            buffers.append(self._halves)
        body = sequence([*self._clear(), *self._multiply(), *self._end()])
        if self._tiling.total % self._tiling.threads:
            body = tirx.IfThenElse(self._number < self._tiling.total, body, None)
        block = s_tir.SBlock([], [], [], "depthwise", body, None, buffers)
        axes = (
            (self._thread, self._tiling.threads, "threadIdx.x"),
            (self._block, self._tiling.grid, "blockIdx.x"),
        )
        put_into(schedule, bound(s_tir.SBlockRealize([], True, block), axes))

    @property
    def _in_halves(self) -> bool:
        return not (self._window.bytes or self._tiling.single)

    def _clear(self) -> list[tirx.Stmt]:
        zero = tirx.const(0, self._sums.dtype)
        count = self._tiling.results * self._tiling.width
        return [tirx.BufferStore(self._sums, zero, [number]) for number in range(count)]

    def _multiply(self) -> list[tirx.Stmt]:
        if self._window.bytes:
            return self._multiply_bytes()
        statements = []
        if self._tiling.whole:
            for tap in range(self._window.rows.taps):
                statements += self._load_weights(tap, tap * self._window.columns.taps)
            statements += self._clear_halves()
        for place, result, tap in self._window.rows.places(self._tiling.rows):
            statements += self._load_row((self._row + result, tap, self._inside(self._row, result, "rows")))
            if not self._tiling.whole:
                statements += [*self._load_weights(tap, 0), *self._clear_halves()]
            for row in range(self._tiling.rows):
                of_tap, rest = divmod(place - row * self._window.rows.stride, self._window.rows.distance)
                if rest == 0 and 0 <= of_tap < self._window.rows.taps:
                    statements += self._multiply_row(row, of_tap if self._tiling.whole else 0)
            if not self._tiling.whole:
                statements += self._add_halves()
        if self._tiling.whole:
            statements += self._add_halves()
        return statements

    def _inside(self, start: Any, result: int, side: str) -> Any:
        """Whether a result exists; None where all of a tile do."""
        extent = getattr(self._window, side).extent
        if extent % getattr(self._tiling, side) == 0:
            return None
        return start + result < extent

    def _clear_halves(self) -> list[tirx.Stmt]:
        if not self._in_halves:
            return []
        zero = tirx.const(0, "uint32")
        count = self._tiling.results * self._tiling.words
        return [tirx.BufferStore(self._halves, zero, [number]) for number in range(count)]

    def _add_halves(self) -> list[tirx.Stmt]:
        if not self._in_halves:
            return []
        words, width = self._tiling.words, self._tiling.width
        return [
            cuda.add_halves(self._sums.data, n * width, self._halves.data, n * words, words)
            for n in range(self._tiling.results)
        ]

    def _load_weights(self, tap: int, first: int) -> list[tirx.Stmt]:
        """Loads the weights of one row of the window."""
        words, data = self._tiling.words, self._weight_words.data
        return [
            cuda.load(data, (first + column) * words, words, self._weight(tap, column), None, 0)
            for column in range(self._window.columns.taps)
        ]

    def _weight(self, row: int, column: int) -> Any:
        window = self._window
        values = {window.channel: self._channel}
        for side, tap in ((window.rows, row), (window.columns, column)):
            if side.tap is not None:
                values[side.tap] = tap
        return tirx.address_of(self._epilogue.in_anchor(self._weights.load, values))

    def _load_row(self, row: _Place) -> list[tirx.Stmt]:
        """Loads what the results of a row read of one row of the image."""
        words, statements = self._tiling.words, []
        for number, place in enumerate(self._column_places()):
            statements.append(self._load(number * words, row, place))
        return statements

    def _column_places(self) -> list[_Place]:
        places = self._window.columns.places(self._tiling.columns)
        return [
            (self._column + result, tap, self._inside(self._column, result, "columns"))
            for _, result, tap in places
        ]

    def _load(self, first: int, row: _Place, column: _Place) -> tirx.Stmt:
        """Loads neighbouring channels of one place of the image."""
        window = self._window
        values = {**self._outer, window.channel: self._channel}
        conditions = []
        for side, (result, tap, inside) in ((window.rows, row), (window.columns, column)):
            if side.axis is not None:
                values[side.axis] = result
            if side.tap is not None:
                values[side.tap] = tap
            if inside is not None:
                conditions.append(inside)
        conditions += [self._epilogue.in_anchor(one, values) for one in self._image.conditions]
        inside = None
        for condition in conditions:
            inside = condition if inside is None else tirx.And(inside, condition)
        address = tirx.address_of(self._epilogue.in_anchor(self._image.load, values))
        return cuda.load(self._words.data, first, self._tiling.words, address, inside, window.fill)

    def _multiply_row(self, row: int, tap: int) -> list[tirx.Stmt]:
        """Multiplies a row of the image for the results of one row by one row of the window."""
        window, tiling = self._window, self._tiling
        side, words = window.columns, tiling.words
        numbers = {place: number for number, (place, _, _) in enumerate(side.places(tiling.columns))}
        statements = []
        for column in range(side.taps):
            for result in range(tiling.columns):
                place = numbers[result * side.stride + column * side.distance]
                operands = (self._words.data, place * words)
                weight = (self._weight_words.data, (tap * side.taps + column) * words)
                number = row * tiling.columns + result
                if tiling.single:
                    total = (self._sums.data, number * tiling.width)
                    statements.append(cuda.multiply_single(*total, *operands, *weight, words))
                else:
                    total = (self._halves.data, number * words)
                    statements.append(cuda.multiply_halves(*total, *operands, *weight, words))
        return statements

    def _multiply_bytes(self) -> list[tirx.Stmt]:
        """Four rows of the window at a time, so that a dot product adds up four taps of a channel."""
        window, tiling = self._window, self._tiling
        statements: list[tirx.Stmt] = []
        for group in range(tiling.groups):
            for column in range(window.columns.taps):
                statements += self._load_weights_of(group, column)
        for group in range(tiling.groups):
            for number, (place, _, _) in enumerate(window.columns.places(tiling.columns)):
                statements += self._load_taps(group, number)
                for result in range(tiling.columns):
                    step, rest = divmod(place - result * window.columns.stride, window.columns.distance)
                    if rest == 0 and 0 <= step < window.columns.taps:
                        statements += self._dots(result, group * window.columns.taps + step)
        return statements

    def _rows_of(self, group: int) -> range:
        return range(group * DOT, min((group + 1) * DOT, self._window.rows.taps))

    def _load_weights_of(self, group: int, column: int) -> list[tirx.Stmt]:
        """Loads and turns the weights of four rows of the window; rows that do not exist have zeros."""
        words, data = self._tiling.words, self._weight_words.data
        first = (group * self._window.columns.taps + column) * DOT * words
        rows = self._rows_of(group)
        statements = [
            cuda.load(data, first + n * words, words, self._weight(tap, column), None, 0)
            for n, tap in enumerate(rows)
        ]
        missing = range(len(rows), DOT)
        statements += [cuda.set_words(data, first + n * words, words, 0) for n in missing]
        return statements + [cuda.turn_bytes(data, first + n, words) for n in range(words)]

    def _load_taps(self, group: int, number: int) -> list[tirx.Stmt]:
        """Loads and turns four rows of the image; those beyond the window meet weights of zero."""
        words, column = self._tiling.words, self._column_places()[number]
        rows = self._rows_of(group)
        statements = [self._load(n * words, (self._row, tap, None), column) for n, tap in enumerate(rows)]
        data = self._words.data
        statements += [cuda.set_words(data, n * words, words, 0) for n in range(len(rows), DOT)]
        return statements + [cuda.turn_bytes(data, n, words) for n in range(words)]

    def _dots(self, result: int, weights: int) -> list[tirx.Stmt]:
        """Adds the dot products of all channels for one result."""
        words, signed = self._tiling.words, self._window.image.type.name == "int8"
        statements = []
        for word in range(words):
            total = (self._sums.data, result * self._tiling.width + DOT * word)
            operands = (self._words.data, word, self._weight_words.data, weights * DOT * words + word)
            statements.append(cuda.dot_bytes(*total, *operands, words, signed))
        return statements

    def _end(self) -> list[tirx.Stmt]:
        """Computes and stores what becomes of the sums, neighbouring channels at once."""
        statements = []
        for row in range(self._tiling.rows):
            for column in range(self._tiling.columns):
                statements.append(self._end_of(row, column))
        return statements

    def _end_of(self, row: int, column: int) -> tirx.Stmt:
        window, width = self._window, self._tiling.width
        values = {**self._outer, window.channel: self._channel}
        conditions = []
        for side, name, start, result in (
            (window.rows, "rows", self._row, row), (window.columns, "columns", self._column, column)
        ):  # fmt: skip
            if side.axis is not None:
                values[side.axis] = start + result
            inside = self._inside(start, result, name)
            if inside is not None:
                conditions.append(inside)
        first = (row * self._tiling.columns + column) * width
        statements = []
        target = None
        for lane in range(width):
            own = {**values, window.channel: self._channel + lane}
            written, value, place = self._epilogue.end(own, tirx.BufferLoad(self._sums, [first + lane]))
            target = target if target is not None else tirx.address_of(tirx.BufferLoad(written, place))
            statements.append(tirx.BufferStore(self._results, value, [lane]))
        statements.append(cuda.store(target, self._results.data, window.result.type.name, width))
        body = sequence(statements)
        for condition in conditions:
            body = tirx.IfThenElse(condition, body, None)
        return body
