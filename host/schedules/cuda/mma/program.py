"""The program of a product on tensor cores: copies, the loop over the depth, and the stages after it.

The whole nest takes the place of the function's body. It is not a step of the trace: a replayed trace is the
unscheduled function.
"""

from __future__ import annotations

from typing import Any

from tvm import s_tir, tirx

from host.schedules.cuda.epilogue import Element, Epilogue
from host.schedules.cuda.mma import instructions as ptx
from host.schedules.cuda.mma.ends import Parts, digits, end_of, sum_of_parts
from host.schedules.cuda.mma.multiply import cleared, multiplied, registers_of
from host.schedules.cuda.mma.packed import packed_chunk
from host.schedules.cuda.mma.product import STORED, Product
from host.schedules.cuda.mma.shares import Segment, SharedParts, Shares, place_of, sum_of_shares, tiles_of
from host.schedules.cuda.mma.tiles import MATRIX, MMA_COLUMNS, MMA_ROWS, WARP, Source, Tiling
from host.schedules.cuda.nest import bound, buffer, put_into, sequence, unrolled
from host.schedules.cuda.sources import CHUNK_BYTES


class Program:
    """Builds the body of the function of one product."""

    def __init__(
        self,
        product: Product,
        tiling: Tiling,
        elements: tuple[Element, Element],
        epilogue: Epilogue,
        scope: str,
        shares: Shares | None = None,
    ) -> None:
        """Lays the block's tile out.

        Args:
            product: of the anchor.
            tiling: of the program.
            elements: of the left and the right operand.
            epilogue: what is done with the results.
            scope: of the tiles in shared memory.
            shares: of the tiles that fill no wave; None where every block has a tile or a split of one.
        """
        self.product, self.tiling, self._epilogue = product, tiling, epilogue
        self._lane, self._warp, self._block = (tirx.Var(name, "int32") for name in ("lane", "warp", "block"))
        self._segment_number = tirx.Var("segment", "int32")
        self._shares, self._segments = shares, tirx.const(1, "int32")
        self._named: list[tirx.Stmt] = []
        self._parts: Parts | SharedParts | None = None
        if shares is not None:
            self._grid, self._parts = shares.blocks, SharedParts(product, tiling, shares)
            begin, self._segments = shares.segments(self._block)
            self._segment = self._name(shares.segment(self._block, begin, self._segment_number))
        else:
            tiles = tiles_of(product, tiling)
            self._grid = tiles * tiling.splits
            self._parts = Parts(product, tiling.splits) if tiling.splits > 1 else None
            split = self._block // tiles if self._parts else 0
            steps = -(-product.steps // tiling.depth) // tiling.splits
            self._segment = Segment(self._block, split * steps, steps, split)
        self._batch, self._row, self._column = place_of(product, tiling, self._segment.tile)
        self._row_warp = self._warp // tiling.column_warps % tiling.row_warps
        self._column_warp = self._warp % tiling.column_warps
        self._slice = self._warp // (tiling.column_warps * tiling.row_warps)
        self._pool = buffer("pool", tiling.shared_bytes, "uint8", scope)
        self._registers = registers_of(product, tiling)
        self._packed = buffer("packed", product.chunk, "uint8")
        self._gathered = buffer("gathered", product.chunk, product.element)
        # Of each strip of rows: TVM's generator of CUDA C++ takes a second read of a vector for the first
        # one, whatever was called in between.
        strips = tiling.rows // MMA_ROWS
        self._values = [buffer(f"values{strip}", STORED, product.sums) for strip in range(strips)]
        left, right = product.left, product.right
        limit = product.window.places if product.windowed and product.window else product.rows
        self._left = Source(left, tiling.left, 0, elements[0], self._row, limit)
        self._right = Source(
            right, tiling.right, tiling.left.bytes, elements[1], self._column, product.columns
        )

    def _name(self, segment: Segment) -> Segment:
        """The segment by variables, so that what it is made of is computed once."""
        variables = [tirx.Var(name, "int32") for name in segment._fields]
        self._named = [tirx.Bind(*pair) for pair in zip(variables, segment, strict=True)]
        return Segment(*variables)

    def put_into(self, schedule: s_tir.Schedule) -> None:
        """Puts the program in the place of everything that the function does."""
        if self._parts is None:
            put_into(schedule, self._body())
            return
        if isinstance(self._parts, SharedParts):
            joined = sum_of_shares(self._parts, self._epilogue)
        else:
            joined = sum_of_parts(self._parts, self._epilogue)
        put_into(schedule, sequence([self._body(), joined]), [self._parts.buffer])

    def _body(self) -> tirx.Stmt:
        """The nest of blocks, warps and lanes."""
        product, registers = self.product, self._registers
        clear = cleared(product, self.tiling, registers)
        parts = [clear, self._first_copies(), self._loop(), ptx.wait(0), ptx.block_barrier(), self._results()]
        if self._shares is not None:
            # What the next part copies lies where the sums of this one were.
            parts = [*self._named, *parts, ptx.block_barrier()]
            kind = tirx.ForKind.SERIAL
            parts = [tirx.For(self._segment_number, 0, self._segments, kind, sequence(parts))]
        buffers = [self._pool, registers.sums, registers.left, registers.right, *self._values]
        if 1 in (product.left.width, product.right.width):
            buffers.append(self._gathered)
        if product.right.computed:
            buffers.append(self._packed)
        if self.tiling.half_sums:
            buffers.append(registers.halves)
        block = s_tir.SBlock([], [], [], "mma", sequence(parts), None, buffers)
        axes = (
            (self._lane, WARP, "threadIdx.x"),
            (self._warp, self.tiling.warps, "threadIdx.y"),
            (self._block, self._grid, "blockIdx.x"),
        )
        return bound(s_tir.SBlockRealize([], True, block), axes)

    def _first_copies(self) -> tirx.Stmt:
        """Fills all stages but one; what a window reads comes with the first of them."""
        statements = [self._copy(self._left, 0, 0)] if self.product.windowed else []
        for step in range(self.tiling.stages - 1):
            if self._shares is not None and step:
                copies = sequence(self._copies(step, step))
                statements.append(tirx.IfThenElse(step < self._segment.count, copies, None))
            elif self._shares is not None or step < self._segment.count:
                statements += self._copies(step, step)
            statements.append(ptx.commit())
        return sequence(statements)

    def _loop(self) -> tirx.Stmt:
        """The loop over the depth: a turn multiplies what the one before it loaded, and loads for the next.

        The first turn of a tile sends for a tile that is to come; its stage is one that all warps had read
        when they met last. The last one waits for the next tile, and its warps meet. Where a tile has one
        turn, there is one set of registers, and loads follow the products.
        """
        stages, turns = self.tiling.stages, self.tiling.turns
        step = tirx.Var("step", "int32")
        coming = step + (stages - 1)
        send = tirx.IfThenElse(
            coming < self._segment.count, sequence(self._copies(coming % stages, coming)), None
        )
        parts: list[tirx.Stmt] = []
        for turn in range(turns):
            last = turn == turns - 1
            load = self._load_turn(step + 1 if last else step, 0 if last else turn + 1)
            first = [send, ptx.commit()] if turn == 0 else []
            meet = [ptx.wait(stages - 2), ptx.block_barrier()] if last else []
            if turns == 1:
                parts = [*first, self._products(turn), *meet, load]
            elif last:
                parts += [*meet, load, self._products(turn)]
            else:
                parts += [load, *first, self._products(turn)]
        loop = tirx.For(step, 0, self._segment.count, tirx.ForKind.SERIAL, sequence(parts))
        return sequence([ptx.wait(stages - 2), ptx.block_barrier(), self._load_turn(0, 0), loop])

    def _copies(self, stage: Any, step: Any) -> list[tirx.Stmt]:
        """Sends for both operands' tiles of a step; what a window reads is there already."""
        left = [] if self.product.windowed else [self._copy(self._left, stage, step)]
        return [*left, self._copy(self._right, stage, step)]

    def _whole(self, source: Source) -> bool:
        """Whether shared memory has all that the block reads of an operand at once."""
        return self.product.windowed and source.operand is self.product.left

    def _products(self, turn: int) -> tirx.Stmt:
        return multiplied(self.product, self.tiling, self._registers, turn)

    def _copy(self, source: Source, stage: Any, step: Any) -> tirx.Stmt:
        """Copies the tile of an operand, its pieces shared among the threads of the block."""
        tile, tiling = source.tile, self.tiling
        pieces = tile.rows * tile.chunks * tile.pieces
        length = self.product.chunk // tile.pieces

        def copied(turn: Any) -> tirx.Stmt:
            number = turn * tiling.threads + self._warp * WARP + self._lane
            piece, number_of_chunk = number % tile.pieces, number // tile.pieces
            row, chunk = number_of_chunk // tile.chunks, number_of_chunk % tile.chunks
            exchanged = chunk ^ (row >> tile.shift & tile.mask)
            place = (row * tile.chunks + exchanged) * CHUNK_BYTES + piece * (CHUNK_BYTES // tile.pieces)
            place = stage * tiling.stage_bytes + source.begin + place
            along = chunk * self.product.chunk + piece * length
            outer, depth = (row, along) if source.operand.along_depth else (along, row)
            first = 0 if self._whole(source) else (self._segment.first + step) * tiling.depth
            here = (source.outer + outer, first + depth)
            statement = (
                self._gather(source, place, here) if tile.loads > 1 else self._send(source, place, here)
            )
            return tirx.IfThenElse(number < pieces, statement, None) if pieces % tiling.threads else statement

        return unrolled(tiling.rounds(tile), copied)

    def _send(self, source: Source, place: Any, here: tuple[Any, Any]) -> tirx.Stmt:
        """Sends for neighbours from a row or column and a depth; what lies outside is filled up."""
        size = CHUNK_BYTES // source.tile.pieces
        load, inside = self._element(source, *here)
        copy = tirx.address_of(load)
        if inside is None or not source.operand.fill:
            wanted: Any = size if inside is None else tirx.if_then_else(inside, size, 0)
            return ptx.copy_async(self._pool.data, place, copy, size, wanted)
        # Seen by the others at the same barrier as copies.
        filled = ptx.store_fill(self._pool.data, place, size, source.operand.fill)
        return tirx.IfThenElse(inside, ptx.copy_async(self._pool.data, place, copy, size, size), filled)

    def _gather(self, source: Source, place: Any, here: tuple[Any, Any]) -> tirx.Stmt:
        """Loads the elements of a chunk one by one, rounds those that are no halves, and stores it."""
        element, operand = self.product.element, source.operand
        nothing = tirx.const(operand.fill, element)
        outer, depth = here
        fetch, fetched = packed_chunk(self.product, operand, self._packed, self._element(source, *here))

        def gather(number: Any) -> tirx.Stmt:
            further = (outer, depth + number) if source.operand.along_depth else (outer + number, depth)
            load, inside = self._element(source, *further)
            load = fetched(load, number)
            value = load if str(load.ty) == element else tirx.Cast(element, load)
            value = value if inside is None else tirx.if_then_else(inside, value, nothing)
            return tirx.BufferStore(self._gathered, value, [number])

        store = ptx.store_chunk(self._pool.data, place, self._gathered.data, element)
        return sequence([*fetch, unrolled(self.product.chunk, gather), store])

    def _element(self, source: Source, outer: Any, depth: Any) -> tuple[Any, Any]:
        """A load of the element in a row or column at a depth, and whether it exists; None where all do."""
        product, tiling = self.product, self.tiling
        size = tiling.block_rows if source.operand is product.left else tiling.block_columns
        values = {
            **digits(self._batch, product.batch, product),
            **digits(outer, source.operand.outer, product),
            **digits(depth, product.depth, product),
        }
        conditions = product.groups.conditions(values)
        if source.limit % size or self._whole(source):
            conditions.append(outer < source.limit)
        if product.steps % tiling.depth:
            conditions.append(depth < product.steps)
        own = product.groups.in_function(values)
        conditions += [self._epilogue.in_anchor(one, own) for one in source.element.conditions]
        inside = None
        for condition in conditions:
            inside = condition if inside is None else tirx.And(inside, condition)
        return self._epilogue.in_anchor(source.element.load, own), inside

    def _load_turn(self, step: Any, turn: int) -> tirx.Stmt:
        """Loads the operands of a turn of a step into the registers of its number, even or odd."""
        tall, wide = self.tiling.rows // MMA_ROWS, self.tiling.columns // MMA_COLUMNS
        begin = step % self.tiling.stages * self.tiling.stage_bytes
        depth = turn * self.tiling.slices + self._slice
        place = (begin, depth)
        if self.product.windowed:
            # It has the whole depth.
            place = (0, (self._segment.first + step) * (self.tiling.depth // self.product.mma_depth) + depth)
        left = unrolled(tall, lambda row: self._load_left(*place, row, turn % 2))
        right = unrolled(wide // 2, lambda column: self._load_right(begin, depth, column, turn % 2))
        return sequence([left, right])

    def _load_left(self, begin: Any, depth: Any, row: Any, parity: int) -> tirx.Stmt:
        """Loads 16 rows of the left operand: rows 0 to 7, 8 to 15, then the same at a depth of 8."""
        first = self._row_warp * self.tiling.rows + row * MMA_ROWS
        lower, deeper = self._lane // MATRIX % 2, self._lane // (2 * MATRIX)
        words = (self._registers.left.data, parity * self.tiling.left_words + row * 4)
        return self._load(self._left, begin, (first, lower), (depth * self.product.mma_depth, deeper), words)

    def _load_right(self, begin: Any, depth: Any, column: Any, parity: int) -> tirx.Stmt:
        """Loads 16 columns of the right operand: a depth of 0 to 7, 8 to 15, then the same 8 columns on."""
        first = self._column_warp * self.tiling.columns + column * (2 * MMA_COLUMNS)
        deeper, later = self._lane // MATRIX % 2, self._lane // (2 * MATRIX)
        words = (self._registers.right.data, parity * self.tiling.right_words + column * 4)
        return self._load(self._right, begin, (first, later), (depth * self.product.mma_depth, deeper), words)

    def _load(
        self,
        source: Source,
        begin: Any,
        outer: tuple[Any, Any],
        depth: tuple[Any, Any],
        words: tuple[Any, Any],
    ) -> tirx.Stmt:
        """Loads four matrices.

        All begin at a row that is a multiple of eight, so a lane's row determines how chunks are exchanged.

        Args:
            source: the operand.
            begin: byte at which the stage begins.
            outer: where the four begin, and how many eights further that of a lane does.
            depth: the same along the depth.
            words: registers, and the first of them.
        """
        tile = source.tile
        along_depth = source.operand.along_depth
        (row, eights), (along, chunks) = (outer, depth) if along_depth else (depth, outer)
        own = self._lane % MATRIX
        if self._whole(source):
            assert self.product.window is not None, "its rows are numbered through an image"
            further, chunk = self.product.window.place(along // self.product.chunk + chunks)
            place = tile.place(row + eights * MATRIX + own + further, chunk)
            return ptx.load_matrices(*words, self._pool.data, begin + source.begin + place, False)
        exchanged = (along // self.product.chunk + chunks) ^ (own >> tile.shift & tile.mask)
        place = begin + source.begin + ((row + eights * MATRIX + own) * tile.chunks + exchanged) * CHUNK_BYTES
        # Matrices whose rows are neighbours along the depth are read as the instruction wants them.
        return ptx.load_matrices(*words, self._pool.data, place, not along_depth)

    def _results(self) -> tirx.Stmt:
        """Brings the sums into the order of memory, 16 rows of a warp at a time, and ends with them."""
        tiling = self.tiling
        barrier = ptx.warp_barrier if tiling.slices == 1 else ptx.block_barrier

        parts = []
        for strip in range(tiling.rows // MMA_ROWS):
            parts += [self._put(strip), barrier(), self._take(strip), barrier()]
        return sequence(parts)

    def _put(self, strip: int) -> tirx.Stmt:
        """Stores a warp's sums of 16 rows."""
        product, tiling = self.product, self.tiling
        wide = tiling.columns // MMA_COLUMNS
        row, pair = self._lane // 4, self._lane % 4
        begin = self._warp * tiling.strip_bytes + (row * tiling.pitch + pair * 2) * 4

        def stored(column: Any) -> tirx.Stmt:
            place = begin + tiling.exchanged(row, column * (4 * MMA_COLUMNS), 4)
            first = (strip * wide + column) * 4
            return ptx.store_sums(
                self._pool.data, place, 4 * 8 * tiling.pitch, self._registers.sums.data, first, product.sums
            )

        return unrolled(wide, stored)

    def _take(self, strip: int) -> tirx.Stmt:
        """Ends with 16 rows, shared among the warps whose slices are added up."""
        tiling, product = self.tiling, self.product
        sharing, quads = tiling.slices * WARP, tiling.columns // STORED
        group, values = self._warp % (tiling.row_warps * tiling.column_warps), self._values[strip]

        def taken(number: Any) -> tirx.Stmt:
            quad = number * sharing + self._slice * WARP + self._lane
            row, column = quad // quads, quad % quads * STORED
            statements = []
            for part in range(tiling.slices):
                warp = group + part * tiling.row_warps * tiling.column_warps
                place = row * tiling.pitch + tiling.exchanged(row, column)
                place = warp * tiling.strip_bytes + place * 4
                statements.append(ptx.load_sums(values.data, self._pool.data, place, part > 0, product.sums))
            row = self._row + self._row_warp * tiling.rows + strip * MMA_ROWS + row
            column = self._column + self._column_warp * tiling.columns + column
            statements.append(self._ended(row, column, values))
            statement = sequence(statements)
            if product.rows % tiling.block_rows:
                return tirx.IfThenElse(row < product.rows, statement, None)
            return statement

        # A loop, not written out: the stages after a product may be long.
        number = tirx.Var("turn", "int32")
        return tirx.For(number, 0, MMA_ROWS * quads // sharing, tirx.ForKind.SERIAL, taken(number))

    def _ended(self, row: Any, column: Any, values: tirx.Buffer) -> tirx.Stmt:
        """What becomes of four neighbouring sums: results, or one of the parts that are added up later."""
        if isinstance(self._parts, Parts):
            whole = self._parts.pitch % self.tiling.block_columns == 0
            return self._parts.store((self._segment.part, self._batch, row, column), values, whole)
        place = (self._batch, row, column)
        ended = end_of(self.product, self._epilogue, place, values, self.tiling.block_columns)
        if not isinstance(self._parts, SharedParts) or self._shares is None:
            return ended
        inside = (row - self._row, column - self._column)
        stored = self._parts.store(self._segment.part, *inside, values)
        if not self._shares.whole:
            return stored
        return tirx.IfThenElse(self._segment.count == self._shares.steps, ended, stored)
