"""The program of attention on tensor cores: copies, and the loop over keys and values.

A block has tiles of queries of one head, which stay in registers. Keys and values pass through shared memory,
several stages at a time. A warp multiplies its queries with some keys, takes powers of the scores where they
are, and multiplies these with the values: sums of the first product lie in a warp's lanes as operands of the
second one want them (PTX ISA 8.5, "Matrix Fragments for mma.m16n8k16"). A row's maximum grows as keys come;
its total and its sums are scaled by what the maximum has grown (Milakov and Gimelshein, arXiv 1805.02867).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx

from host.schedules.cuda.attention import instructions as lanes
from host.schedules.cuda.attention.order import alternating, digits
from host.schedules.cuda.attention.shape import CHUNK, UNIT, Operand
from host.schedules.cuda.attention.softmax import Softmax
from host.schedules.cuda.attention.tiles import MATRIX, SUMS, WARP, KeptTile, Tiling
from host.schedules.cuda.mma import instructions as ptx
from host.schedules.cuda.nest import bound, buffer, put_into, sequence, unrolled
from host.schedules.cuda.sources import CHUNK_BYTES

_HALVES = ("float16", "float16")


@dataclass(frozen=True)
class Options:
    """What a function states beside its sizes.

    Attributes:
        scale: of the scores, positive.
        causal: a row sees columns up to its own number and this; None for all.
    """

    scale: float
    causal: int | None


class Program:
    """Builds the body of the function of one attention."""

    def __init__(
        self, tiling: Tiling, options: Options, buffers: Mapping[str, tirx.Buffer], scope: str
    ) -> None:
        """Lays the block's tile out.

        Args:
            tiling: of the program.
            options: that the function states.
            buffers: the function's arguments: "query", "key", "value", "output" and perhaps "mask".
            scope: of keys and values in shared memory.
        """
        self.tiling, self.shape, self._buffers = tiling, tiling.shape, buffers
        self._causal = options.causal
        self._lane, self._warp, self._block = (tirx.Var(name, "int32") for name in ("lane", "warp", "block"))
        head = self._block // tiling.row_blocks
        self._heads = digits(head, self.shape.batch)
        # Of the block, and of the warp.
        self._first_row = self._block % tiling.row_blocks * tiling.block_rows
        self._row = self._first_row + self._warp % tiling.warps * tiling.rows
        self._slice: Any = self._warp // tiling.warps if tiling.slices > 1 else 0
        self._pool = buffer("pool", tiling.shared_bytes, "uint8", scope)
        self._scores = buffer("scores", tiling.scores, "float32")
        self._sums = buffer("sums", tiling.sums, "float32")
        self._queries = buffer("queries", tiling.query_words, "uint32")
        self._words = buffer("words", 2 * tiling.operand_words, "uint32")
        self._powers = buffer("powers", 4 * tiling.strips, "uint32")
        self._gathered = buffer("gathered", CHUNK, "float16")
        self._softmax = Softmax(tiling, options.scale, options.causal, self._scores, self._sums)

    def put_into(self, schedule: s_tir.Schedule) -> None:
        """Puts the program in the place of everything that the function does."""
        softmax = self._softmax
        parts = [softmax.clear(), self._load_queries(), *self._loop(), *self._joined()]
        buffers = [self._pool, self._scores, self._sums, self._queries, self._words, self._powers]
        buffers += softmax.buffers
        if self.tiling.keys.gathered or self.tiling.values.gathered:
            buffers.append(self._gathered)
        body = sequence([*parts, self._first_slice(sequence(self._results()))])
        block = s_tir.SBlock([], [], [], "attention", body, None, buffers)
        axes = (
            (self._lane, WARP, "threadIdx.x"),
            (self._warp, self.tiling.warps * self.tiling.slices, "threadIdx.y"),
            (self._block, self.shape.heads * self.tiling.row_blocks, "blockIdx.x"),
        )
        put_into(schedule, bound(s_tir.SBlockRealize([], True, block), axes))

    def _first_slice(self, body: tirx.Stmt) -> tirx.Stmt:
        return tirx.IfThenElse(self._slice == 0, body, None) if self.tiling.slices > 1 else body

    def _element(self, name: str, operand: Operand, row: Any, element: Any) -> tirx.BufferLoad:
        return tirx.BufferLoad(self._buffers[name], operand.place((*self._heads, row, element)))

    def _load_queries(self) -> tirx.Stmt:
        """Loads the warp's queries as operands: pairs of neighbours of rows 8 apart, then 8 elements on."""
        operand, depth = self.shape.query, self.shape.depth
        statements: list[tirx.Stmt] = []
        for number in range(self.tiling.query_words):
            register, unit = number % 4, number // 4 % self.shape.depth_units
            strip = number // (4 * self.shape.depth_units)
            row = self._row + strip * UNIT + self._lane // 4 + register % 2 * 8
            row = tirx.min(row, self.shape.rows - 1)
            first = unit * UNIT + register // 2 * 8 + self._lane % 4 * 2
            if operand.width > 1:
                value = lanes.load_pair(tirx.address_of(self._element("query", operand, row, first)))
                inside = None if unit * UNIT + UNIT <= depth else first < depth
                zero = tirx.const(0, "uint32")
                store = tirx.BufferStore(self._queries, value, [number])
                if inside is not None:
                    other = tirx.BufferStore(self._queries, zero, [number])
                    store = tirx.IfThenElse(inside, store, other)
            else:
                pair = [self._single("query", operand, row, first + one, depth) for one in range(2)]
                store = tirx.BufferStore(self._queries, lanes.pair_of_halves(*pair), [number])
            statements.append(store)
        return sequence(statements)

    def _single(self, name: str, operand: Operand, row: Any, element: Any, size: int) -> Any:
        """An element in single precision, zero behind the last one."""
        value = tirx.Cast("float32", self._element(name, operand, row, element))
        if size % UNIT == 0:
            return value
        return tirx.if_then_else(element < size, value, tirx.const(0.0, "float32"))

    @property
    def _turns(self) -> Any:
        """Stages of keys that the block's rows see."""
        tiling = self.tiling
        if self._causal is None:
            return tiling.turns
        last = tirx.min(self._first_row + tiling.block_rows, self.shape.rows) - 1 + self._causal
        return tirx.min(last // tiling.block_columns + 1, tiling.turns)

    def _loop(self) -> list[tirx.Stmt]:
        """The loop over stages of keys and values.

        With several stages, a turn waits for its own, and sends for one that is to come: its place in shared
        memory is the one that all warps had read when they met. With one stage, they meet before it is
        copied, too.
        """
        stages, turns = self.tiling.stages, self._turns
        turn = tirx.Var("turn", "int32")
        if stages == 1:
            parts = [ptx.block_barrier()] if self.tiling.turns > 1 else []
            parts += [*self._copies(0, turn), ptx.commit(), ptx.wait(0), ptx.block_barrier()]
            parts.append(self._attend(0, turn))
            return [tirx.For(turn, 0, turns, tirx.ForKind.SERIAL, sequence(parts))]
        first: list[tirx.Stmt] = []
        for number in range(stages - 1):
            copies = sequence(self._copies(number, number))
            if self._causal is not None:
                copies = tirx.IfThenElse(turns > number, copies, None)
            first += [copies] if number < self.tiling.turns else []
            first.append(ptx.commit())
        coming = turn + (stages - 1)
        send = sequence(self._copies(coming % stages, coming))
        parts = [ptx.wait(stages - 2), ptx.block_barrier()]
        parts += [tirx.IfThenElse(coming < turns, send, None), ptx.commit()]
        parts.append(self._attend(turn % stages, turn))
        return [*first, tirx.For(turn, 0, turns, tirx.ForKind.SERIAL, sequence(parts))]

    def _copies(self, stage: Any, turn: Any) -> list[tirx.Stmt]:
        """Sends for the keys and the values of a turn."""
        begin, shape = stage * self.tiling.stage_bytes, self.shape
        return [
            self._copy("key", shape.key, self.tiling.keys, (begin, turn), shape.depth),
            self._copy(
                "value", shape.value, self.tiling.values, (begin + self.tiling.keys.bytes, turn), shape.width
            ),
        ]

    def _copy(self, name: str, operand: Operand, tile: KeptTile, at: tuple[Any, Any], size: int) -> tirx.Stmt:
        """Copies a tile: eight rows of a chunk by neighbouring threads, chunk after chunk."""
        tiling, (begin, turn) = self.tiling, at
        length = CHUNK // tile.pieces

        def copied(number: Any) -> tirx.Stmt:
            place = number * tiling.threads + self._warp * WARP + self._lane
            piece, row = place % tile.pieces, place // tile.pieces % MATRIX
            group = place // (tile.pieces * MATRIX)
            chunk, row = group % tile.chunks, group // tile.chunks * MATRIX + row
            to = begin + (row * tile.pitch + chunk) * CHUNK_BYTES + piece * (length * 2)
            key = turn * tiling.block_columns + row
            inside, element = key < self.shape.columns, chunk * CHUNK + piece * length
            key = tirx.min(key, self.shape.columns - 1)
            if tile.gathered:
                statement = self._gather(name, operand, (key, element, to, inside), size)
            else:
                if size % UNIT:
                    inside = tirx.And(inside, element < size)
                    element = tirx.min(element, size - length)
                source = tirx.address_of(self._element(name, operand, key, element))
                wanted = tirx.if_then_else(inside, length * 2, 0)
                statement = ptx.copy_async(self._pool.data, to, source, length * 2, wanted)
            rest = tile.copies % tiling.threads
            return tirx.IfThenElse(place < tile.copies, statement, None) if rest else statement

        return unrolled(tiling.rounds(tile), copied)

    def _gather(self, name: str, operand: Operand, where: tuple[Any, Any, Any, Any], size: int) -> tirx.Stmt:
        """Loads the elements of a chunk one by one, rounds those that are no halves, and stores it."""
        key, first, to, inside = where

        def gather(number: Any) -> tirx.Stmt:
            element = first + number
            there = tirx.And(inside, element < size)
            load = self._element(name, operand, key, tirx.min(element, size - 1))
            value = tirx.if_then_else(there, tirx.Cast("float16", load), tirx.const(0, "float16"))
            return tirx.BufferStore(self._gathered, value, [number])

        store = ptx.store_chunk(self._pool.data, to, self._gathered.data, "float16")
        return sequence([unrolled(CHUNK, gather), store])

    def _attend(self, stage: Any, turn: Any) -> tirx.Stmt:
        """A warp's share of a turn: scores, their powers, and products with values."""
        tiling = self.tiling
        begin = stage * tiling.stage_bytes
        column = turn * tiling.block_columns + self._slice * tiling.columns
        parts = [self._clear_scores(), *self._multiply_keys(begin)]
        parts += self._softmax.powers(column, self._row, self._lane, self._mask(column))
        parts += self._multiply_values(begin + tiling.keys.bytes)
        body = sequence(parts)
        seen = []
        if tiling.slices > 1:
            seen.append(column < self.shape.columns)
        if self._causal is not None:
            seen.append(column <= self._row + (tiling.rows - 1 + self._causal))
        for condition in seen:
            body = tirx.IfThenElse(condition, body, None)
        return body

    def _mask(self, column: Any) -> Any:
        """What is added to the score of a row and a column of the warp's tile; None without a mask."""
        operand = self.shape.mask
        if operand is None:
            return None

        def added(row: Any, further: Any) -> Any:
            index = (*self._heads, tirx.min(row, self.shape.rows - 1))
            place = operand.place((*index, tirx.min(column + further, self.shape.columns - 1)))
            return tirx.Cast("float32", tirx.BufferLoad(self._buffers["mask"], place))

        return added

    def _clear_scores(self) -> tirx.Stmt:
        zero = tirx.const(0.0, "float32")
        return unrolled(self.tiling.scores, lambda n: tirx.BufferStore(self._scores, zero, [n]))

    def _multiply_keys(self, begin: Any) -> list[tirx.Stmt]:
        """Products with keys: operands of a unit are loaded while the one before is multiplied."""
        tiling, units = self.tiling, self.shape.depth_units
        row = self._slice * tiling.columns + self._lane % 8 + self._lane // 16 * 8
        groups = tiling.columns // UNIT

        def load(unit: int) -> tirx.Stmt:
            chunk = self._lane // 8 % 2 + 2 * unit
            place = begin + (row * tiling.keys.pitch + chunk) * CHUNK_BYTES
            step = UNIT * tiling.keys.pitch * CHUNK_BYTES
            first = unit % 2 * tiling.operand_words
            return unrolled(groups, lambda n: self._load(first + 4 * n, place + n * step, False))

        def multiply(unit: int) -> tirx.Stmt:
            first = unit % 2 * tiling.operand_words
            parts = []
            for strip in range(tiling.strips):
                query = (strip * units + unit) * 4
                begin_of = strip * 2 * groups * SUMS
                parts.append(
                    self._products(self._scores, begin_of, (self._queries, query), first, 2 * groups)
                )
            return sequence(parts)

        return alternating(units, load, multiply)

    def _multiply_values(self, begin: Any) -> list[tirx.Stmt]:
        """Products of powers with values: as with keys, along the columns."""
        tiling, groups = self.tiling, self.shape.width_units
        row = self._slice * tiling.columns + self._lane % 16

        def load(unit: int) -> tirx.Stmt:
            place = begin + ((row + UNIT * unit) * tiling.values.pitch + self._lane // 16) * CHUNK_BYTES
            first = unit % 2 * tiling.operand_words
            return unrolled(groups, lambda n: self._load(first + 4 * n, place + n * (2 * CHUNK_BYTES), True))

        def multiply(unit: int) -> tirx.Stmt:
            first = unit % 2 * tiling.operand_words
            parts = []
            for strip in range(tiling.strips):
                scores = (strip * tiling.columns // MATRIX + 2 * unit) * SUMS
                for word in range(4):
                    pair = [tirx.BufferLoad(self._scores, [scores + 2 * word + one]) for one in range(2)]
                    parts.append(
                        tirx.BufferStore(self._powers, lanes.pair_of_halves(*pair), [4 * strip + word])
                    )
            for strip in range(tiling.strips):
                powers = (self._powers, 4 * strip)
                parts.append(self._products(self._sums, strip * 2 * groups * SUMS, powers, first, 2 * groups))
            return sequence(parts)

        return alternating(tiling.columns // UNIT, load, multiply)

    def _load(self, first: Any, place: Any, transposed: bool) -> tirx.Stmt:
        return ptx.load_matrices(self._words.data, first, self._pool.data, place, transposed)

    def _products(
        self, sums: tirx.Buffer, total: int, left: tuple[tirx.Buffer, int], right: int, count: int
    ) -> tirx.Stmt:
        """Adds products of 16 rows with neighbouring operands of eight columns each."""
        words, first = left
        return unrolled(
            count,
            lambda n: ptx.multiply_add(
                sums.data, total + SUMS * n, words.data, first, self._words.data, right + 2 * n, _HALVES
            ),
        )

    def _joined(self) -> list[tirx.Stmt]:
        """Adds up totals of lanes, and what the slices of a block have."""
        tiling, softmax = self.tiling, self._softmax
        parts = softmax.join_lanes()
        if tiling.slices == 1:
            return parts
        numbers = [*((self._sums, n) for n in range(tiling.sums)), *softmax.of_rows()]
        tile = self._warp % tiling.warps

        def place(number: int, other: Any) -> Any:
            part = (other - 1) * tiling.warps + tile
            return 4 * ((part * len(numbers) + number) * WARP + self._lane)

        def kept(kept_by: tirx.Buffer, n: int) -> Any:
            return tirx.BufferLoad(kept_by, [n])

        store = sequence(
            [
                lanes.store_number(self._pool.data, place(n, self._slice), kept(*number))
                for n, number in enumerate(numbers)
            ]
        )
        add = []
        for other in range(1, tiling.slices):
            add += softmax.add(
                lambda n, other=other: lanes.load_number(self._pool.data, place(n, other))  # type: ignore[misc]
            )
        return [
            *parts,
            ptx.block_barrier(),
            tirx.IfThenElse(self._slice > 0, store, None),
            ptx.block_barrier(),
            self._first_slice(sequence(add)),
        ]

    def _results(self) -> list[tirx.Stmt]:
        """Divides sums by totals, and writes them."""
        shape, tiling, output = self.shape, self.tiling, self.shape.output
        statements: list[tirx.Stmt] = [self._softmax.invert()]
        for number in range(tiling.sums // 2):
            half, tile = number % 2, number // 2 % (2 * shape.width_units)
            strip = number // (4 * shape.width_units)
            row = self._row + strip * UNIT + self._lane // 4 + half * 8
            element = tile * MATRIX + self._lane % 4 * 2
            share = self._softmax.share(2 * strip + half)
            values = [tirx.BufferLoad(self._sums, [2 * number + one]) * share for one in range(2)]
            conditions = (
                [row < shape.rows] if shape.rows % tiling.rows or shape.rows % tiling.block_rows else []
            )
            whole = tile * MATRIX + MATRIX <= shape.width
            if output.width > 1:
                place = tirx.address_of(self._element("output", output, row, element))
                store = lanes.store_pair(place, lanes.pair_of_halves(*values))
                conditions += [] if whole else [element < shape.width]
            else:
                store = sequence([self._single_store(row, element + n, values[n], whole) for n in range(2)])
            for condition in conditions:
                store = tirx.IfThenElse(condition, store, None)
            statements.append(store)
        return statements

    def _single_store(self, row: Any, element: Any, value: Any, whole: bool) -> tirx.Stmt:
        written = self._buffers["output"]
        place = self.shape.output.place((*self._heads, row, element))
        store = tirx.BufferStore(written, value.astype(written.dtype), place)
        return store if whole else tirx.IfThenElse(element < self.shape.width, store, None)
