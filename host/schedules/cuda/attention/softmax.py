"""Softmax of scores in the registers of a warp: running maxima, powers of two, and totals.

Scores are multiplied by log2(e), so that powers of e are powers of two. Without a mask this is one
multiply-add with the maximum; with one, scores are scaled before their maximum is taken. A lane has two
neighbouring scores of two rows, 8 apart, of each product; the four lanes of a quad have a row.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from tvm import tirx

from host.schedules.cuda.attention import instructions as lanes
from host.schedules.cuda.attention.shape import UNIT
from host.schedules.cuda.attention.tiles import MMA_COLUMNS, ROWS_OF_LANE, SUMS, Tiling
from host.schedules.cuda.nest import sequence, unrolled

# Where nothing is seen, and least scores of what is: far enough apart that columns which do not exist have no
# weight in a row whose every score is excluded, and small enough that products with a scale stay finite.
_NOTHING, _LEAST = -2e30, -1e30


class Softmax:
    """Statements of a lane.

    Args:
        tiling: of the program.
        scale: of the scores.
        causal: a row sees columns up to its own number and this; None for all.
        scores: the lane's scores of a turn.
        sums: the lane's sums of the result.
    """

    def __init__(
        self, tiling: Tiling, scale: float, causal: int | None, scores: tirx.Buffer, sums: tirx.Buffer
    ) -> None:
        self._tiling, self._shape, self._causal = tiling, tiling.shape, causal
        self._scores, self._sums = scores, sums
        factor = scale / math.log(2.0)
        # Of scores before and after their maximum is taken.
        self._before, self._after = (factor, 1.0) if self._shape.is_masked else (1.0, factor)
        rows = tiling.kept_rows
        self._top, self._total, self._old = (
            tirx.decl_buffer((rows,), "float32", name, scope="local") for name in ("top", "total", "old")
        )

    @property
    def buffers(self) -> list[tirx.Buffer]:
        """What a lane knows of its rows."""
        return [self._top, self._total, self._old]

    def of_rows(self) -> list[tuple[tirx.Buffer, int]]:
        """Maxima and totals of a lane's rows, which slices hand over."""
        return [(one, n) for one in (self._top, self._total) for n in range(self._tiling.kept_rows)]

    def clear(self) -> tirx.Stmt:
        """Before the first turn."""
        rows = self._tiling.kept_rows
        return sequence(
            [
                unrolled(rows, lambda n: tirx.BufferStore(self._top, _number(_NOTHING), [n])),
                unrolled(rows, lambda n: tirx.BufferStore(self._total, _number(0.0), [n])),
                unrolled(self._tiling.sums, lambda n: tirx.BufferStore(self._sums, _number(0.0), [n])),
            ]
        )

    def powers(
        self, column: Any, row: Any, lane: Any, mask: Callable[[Any, Any], Any] | None
    ) -> list[tirx.Stmt]:
        """Powers in the place of scores, with maxima, totals and sums brought up to date.

        Args:
            column: first one of the warp's tile.
            row: first one of the warp's tile.
            lane: of the warp.
            mask: of a row and a column of the tile, what is added; None for nothing.
        """
        statements = self._seen(column, row, lane, mask)
        for number in range(self._tiling.kept_rows):
            statements += self._row(number)
        return statements

    def _places(self, number: int) -> list[int]:
        """The lane's scores of one of its rows."""
        strip, half = divmod(number, ROWS_OF_LANE)
        tiles = self._tiling.columns // MMA_COLUMNS
        return [((strip * tiles + n) * SUMS) + half * 2 + one for n in range(tiles) for one in range(2)]

    def _seen(self, column: Any, row: Any, lane: Any, mask: Any) -> list[tirx.Stmt]:
        """Adds the mask, and excludes columns that the row does not see or that do not exist."""
        tiling, columns = self._tiling, self._shape.columns
        added: list[tirx.Stmt] = []
        excluded: list[tirx.Stmt] = []
        for number in range(tiling.kept_rows):
            strip, half = divmod(number, ROWS_OF_LANE)
            own = row + (strip * UNIT + half * 8) + lane // 4
            for n, place in enumerate(self._places(number)):
                further = n // 2 * MMA_COLUMNS + lane % 4 * 2 + n % 2
                score = tirx.BufferLoad(self._scores, [place])
                nothing = _number(_NOTHING)
                value = score * _number(self._before) if self._shape.is_masked else score
                if mask is not None:
                    log2e = _number(1.0 / math.log(2.0))
                    # A score that is NaN counts as excluded.
                    value = lanes.larger_number(value + mask(own, further) * log2e, _number(_LEAST))
                if self._causal is not None:
                    value = tirx.Select(column + further <= own + self._causal, value, nothing)
                if self._shape.is_masked:
                    added.append(tirx.BufferStore(self._scores, value, [place]))
                outside = tirx.Select(column + further < columns, score, nothing)
                excluded.append(tirx.BufferStore(self._scores, outside, [place]))
        if columns % tiling.columns:
            last = column + tiling.columns > columns
            added.append(tirx.IfThenElse(last, sequence(excluded), None))
        return added

    def _row(self, number: int) -> list[tirx.Stmt]:
        """One row of a lane: its maximum, powers, total, and the sums of its result."""
        top, total, old = (tirx.BufferLoad(one, [number]) for one in (self._top, self._total, self._old))
        places = self._places(number)
        after = _number(self._after)
        statements: list[tirx.Stmt] = [tirx.BufferStore(self._old, top, [number])]
        scores = [tirx.BufferLoad(self._scores, [place]) for place in places]
        largest = tirx.max(top, _combined(tirx.max, scores))
        statements.append(tirx.BufferStore(self._top, largest, [number]))
        statements.append(tirx.BufferStore(self._top, lanes.quad_largest(top), [number]))
        grown = lanes.power_of_two((old - top) * after)
        statements.append(tirx.BufferStore(self._old, grown, [number]))
        for place, score in zip(places, scores, strict=True):
            exponent = score - top if self._after == 1.0 else score * after - top * after
            statements.append(tirx.BufferStore(self._scores, lanes.power_of_two(exponent), [place]))
        added = _combined(operator.add, scores)
        statements.append(tirx.BufferStore(self._total, total * old + added, [number]))
        return [*statements, self._scaled(number, old)]

    def _scaled(self, number: int, factor: Any) -> tirx.Stmt:
        """Multiplies the sums of a row."""
        return sequence(
            [
                tirx.BufferStore(self._sums, tirx.BufferLoad(self._sums, [place]) * factor, [place])
                for place in self._sums_of(number)
            ]
        )

    def _sums_of(self, number: int) -> list[int]:
        strip, half = divmod(number, ROWS_OF_LANE)
        tiles = 2 * self._shape.width_units
        return [((strip * tiles + n) * SUMS) + half * 2 + one for n in range(tiles) for one in range(2)]

    def join_lanes(self) -> list[tirx.Stmt]:
        """Adds up the totals of the lanes of a row."""
        return [
            tirx.BufferStore(self._total, lanes.quad_total(tirx.BufferLoad(self._total, [n])), [n])
            for n in range(self._tiling.kept_rows)
        ]

    def add(self, load: Callable[[int], Any]) -> list[tirx.Stmt]:
        """Adds what another slice has: `load` gives its sums, then maxima and totals of rows, by number."""
        rows, after = self._tiling.kept_rows, _number(self._after)
        statements: list[tirx.Stmt] = []
        for number in range(rows):
            top, total, old = (tirx.BufferLoad(one, [number]) for one in (self._top, self._total, self._old))
            # The other one's maximum takes the place of a score, which no slice needs any more.
            other = tirx.BufferLoad(self._scores, [0])
            share = tirx.BufferLoad(self._scores, [1])
            statements += [
                tirx.BufferStore(self._scores, load(self._tiling.sums + number), [0]),
                tirx.BufferStore(self._old, top, [number]),
                tirx.BufferStore(self._top, tirx.max(top, other), [number]),
                tirx.BufferStore(self._old, lanes.power_of_two((old - top) * after), [number]),
                tirx.BufferStore(self._scores, lanes.power_of_two((other - top) * after), [1]),
                tirx.BufferStore(
                    self._total, total * old + load(self._tiling.sums + rows + number) * share, [number]
                ),
            ]
            for place in self._sums_of(number):
                mixed = tirx.BufferLoad(self._sums, [place]) * old + load(place) * share
                statements.append(tirx.BufferStore(self._sums, mixed, [place]))
        return statements

    def invert(self) -> tirx.Stmt:
        """The inverse of each row's total, in its place."""
        one = _number(1.0)
        return unrolled(
            self._tiling.kept_rows,
            lambda n: tirx.BufferStore(self._total, one / tirx.BufferLoad(self._total, [n]), [n]),
        )

    def share(self, number: int) -> Any:
        """What sums of a row are multiplied by in the end."""
        return tirx.BufferLoad(self._total, [number])


def _combined(combine: Callable[[Any, Any], Any], values: list[Any]) -> Any:
    """All values combined by pairs, so that few steps follow one another."""
    while len(values) > 1:
        pairs = zip(values[::2], values[1::2], strict=True)
        values = [combine(first, second) for first, second in pairs]
    return values[0]


def _number(value: float) -> Any:
    return tirx.const(value, "float32")
