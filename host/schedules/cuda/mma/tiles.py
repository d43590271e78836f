"""The tiles of a program: of blocks, warps and shared memory, and where each chunk of an operand lies.

Shared memory holds chunks of eight halves or 16 bytes. Those of a row are exchanged by the number of the
row, so that the eight rows of a matrix that `ldmatrix` reads lie in different banks, without room between the
rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from host.schedules.api import Decisions
from host.schedules.cuda.epilogue import Element
from host.schedules.cuda.mma.product import STORED, Operand, Product
from host.schedules.cuda.sources import CHUNK_BYTES

WARP = 32
# Rows and columns of one mma.sync.m16n8k16, or m16n8k32 for bytes.
MMA_ROWS, MMA_COLUMNS = 16, 8
# Rows of a matrix that `ldmatrix` loads.
MATRIX = 8
# Words between the rows of a warp's sums in shared memory beyond its columns: with them, neither the pairs
# that a warp writes nor the vectors that it reads meet in a bank.
_PITCH_WORDS = 8
# Registers of a thread beside its sums, its operands and the addresses of what it copies.
_OTHER_REGISTERS = 34
_REGISTERS_PER_COPY = 2


@dataclass(frozen=True)
class SharedTile:
    """The part of an operand that is in shared memory at a time.

    Attributes:
        rows: of chunks.
        chunks: of a row, a power of two; at least 2 but for what a window reads.
        pieces: copies of a chunk; neighbouring threads send for neighbouring ones.
        loads: of a copy; more than one where it is gathered in registers.
    """

    rows: int
    chunks: int
    pieces: int = 1
    loads: int = 1

    @property
    def bytes(self) -> int:
        """Size of the tile in shared memory, without padding."""
        return self.rows * self.chunks * CHUNK_BYTES

    @property
    def shift(self) -> int:
        """By how many bits the number of a row is shifted before it exchanges chunks."""
        return max(0, MATRIX.bit_length() - self.chunks.bit_length())

    @property
    def mask(self) -> int:
        """The bits of a chunk's number that rows exchange."""
        return min(self.chunks, MATRIX) - 1

    def place(self, row: int, chunk: int) -> int:
        """Byte of the tile at which a chunk begins."""
        return (row * self.chunks + (chunk ^ (row >> self.shift & self.mask))) * CHUNK_BYTES


@dataclass(frozen=True)
class Source:
    """An operand as the program reads it.

    Attributes:
        operand: what the rule knows of it.
        tile: of shared memory.
        begin: byte of a stage at which the tile begins.
        element: as the anchor reads it.
        outer, limit: first row or column of the block, and how many the matrix has.
    """

    operand: Operand
    tile: SharedTile
    begin: int
    element: Element
    outer: Any
    limit: int


@dataclass(frozen=True)
class Tiling:
    """The tiles that decisions describe.

    Attributes:
        rows, columns: of a warp's tile.
        row_warps, column_warps: tiles of a block along both.
        slices: groups of warps that share the depth of a tile.
        depth: of what shared memory holds at a time, all slices together.
        stages: tiles of each operand in shared memory, all but one on their way.
        left, right: tiles of the operands.
        mma_depth: of one instruction.
        splits: blocks that share the depth of a tile of the result; a kernel of its own adds up their sums. 0
            where the multiprocessors share the tiles that fill no wave.
        half_sums: whether the products of a tile of the depth are added up in halves, and then go to sums in
            single precision.
        windowed: whether the left operand's tile is all that the block reads of an image, once.
    """

    rows: int
    columns: int
    row_warps: int
    column_warps: int
    slices: int
    depth: int
    stages: int
    left: SharedTile
    right: SharedTile
    mma_depth: int
    splits: int = 1
    half_sums: bool = False
    windowed: bool = False

    @property
    def block_rows(self) -> int:
        """Rows of a block's tile."""
        return self.rows * self.row_warps

    @property
    def block_columns(self) -> int:
        """Columns of a block's tile."""
        return self.columns * self.column_warps

    @property
    def warps(self) -> int:
        """Warps of a thread block."""
        return self.row_warps * self.column_warps * self.slices

    @property
    def threads(self) -> int:
        """Threads of a thread block."""
        return WARP * self.warps

    @property
    def stage_bytes(self) -> int:
        """Bytes of both operands' tiles, or of the right one's where the left one's is there once."""
        return self.right.bytes + (0 if self.windowed else self.left.bytes)

    @property
    def pitch(self) -> int:
        """Words from one row of a warp's sums in shared memory to the next."""
        return self.columns + (0 if self._exchanges else _PITCH_WORDS)

    @property
    def _exchanges(self) -> bool:
        """Whether rows of sums exchange their eights: two rows fill the banks, with no room between them."""
        return self.columns == 2 * MMA_COLUMNS

    def exchanged(self, row: Any, column: Any, unit: int = 1) -> Any:
        """Where a sum lies in its row in shared memory.

        Args:
            row: of the warp's strip; 8 rows further the same are exchanged.
            column: of the tile, in the unit.
            unit: 1 for words, 4 for bytes.
        """
        return column ^ (row // 2 % 2) * (MMA_COLUMNS * unit) if self._exchanges else column

    @property
    def strip_bytes(self) -> int:
        """Bytes of the sums that a warp puts into shared memory at a time."""
        return 4 * MMA_ROWS * self.pitch

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block: operands first, sums later."""
        once = self.left.bytes if self.windowed else 0
        return max(once + self.stages * self.stage_bytes, self.warps * self.strip_bytes)

    @property
    def sums(self) -> int:
        """Sums that a thread keeps in registers."""
        return self.rows * self.columns // WARP

    @property
    def half_words(self) -> int:
        """Registers of a thread for pairs of sums in halves."""
        return self.sums // 2 if self.half_sums else 0

    @property
    def left_words(self) -> int:
        """Registers of a thread for the left operand of a turn."""
        return self.rows // MMA_ROWS * 4

    @property
    def right_words(self) -> int:
        """Registers of a thread for the right operand of a turn."""
        return self.columns // MMA_COLUMNS * 2

    @property
    def turns(self) -> int:
        """Turns of a warp for one tile of the depth, each of one instruction's depth."""
        return self.depth // (self.mma_depth * self.slices)

    @property
    def sets(self) -> int:
        """Turns whose operands are in registers at a time."""
        return min(2, self.turns)

    def rounds(self, tile: SharedTile) -> int:
        """Copies that a thread sends for a tile, at most."""
        return -(-tile.rows * tile.chunks * tile.pieces // self.threads)

    @property
    def registers(self) -> int:
        """Registers that a thread needs."""
        copies = self.rounds(self.left) + self.rounds(self.right)
        words = self.left_words + self.right_words
        return (
            self.sums + self.half_words + self.sets * words + _REGISTERS_PER_COPY * copies + _OTHER_REGISTERS
        )


def tiling_of(product: Product, values: Decisions) -> Tiling:
    """The tiles of a program."""
    depth, chunk = values["depth"] * values["slices"], product.chunk
    block_rows = values["rows"] * values["row_warps"]

    def tile(operand: Operand, outer: int) -> SharedTile:
        rows, length = (outer, depth) if operand.along_depth else (depth, outer)
        if product.windowed and product.window is not None and operand is product.left:
            rows = -(-(outer + product.window.further) // MATRIX) * MATRIX
            length = product.window.chunks * chunk
        if operand.width == 1:
            return SharedTile(rows, length // chunk, loads=chunk)
        return SharedTile(rows, length // chunk, chunk // operand.width)

    return Tiling(
        rows=values["rows"],
        columns=values["cols"],
        row_warps=values["row_warps"],
        column_warps=values["column_warps"],
        slices=values["slices"],
        depth=depth,
        stages=values["stages"],
        left=tile(product.left, block_rows),
        right=tile(product.right, values["cols"] * values["column_warps"]),
        mma_depth=product.mma_depth,
        splits=values["splits"],
        half_sums=values.get("single") == 0,
        windowed=product.windowed,
    )


def shared_accesses(tiling: Tiling) -> Iterator[tuple[str, list[int], int]]:
    """The accesses of a warp to shared memory of each kind: a name, where its lanes begin, and bytes of each.

    Lanes that shared memory serves together stand together: eight with 16 bytes each, 16 with eight, 32 with
    four.
    """
    for name, tile in (("left", tiling.left), ("right", tiling.right)):
        lanes = range(MATRIX)
        # A tap of a window begins at any row.
        begins = 1 if tiling.windowed and tile is tiling.left else MATRIX
        for first in range(0, tile.rows - MATRIX + 1, begins):
            for chunk in range(tile.chunks):
                yield f"ldmatrix {name}", [tile.place(first + lane, chunk) for lane in lanes], CHUNK_BYTES
        size = CHUNK_BYTES // tile.pieces
        for start in range(0, tile.rows * tile.chunks, MATRIX):
            chunks = [tile.place(*divmod(start + lane, tile.chunks)) for lane in lanes]
            places = [place + piece * size for place in chunks for piece in range(tile.pieces)]
            yield f"copy {name}", places, size
    for half in range(2):
        quads = [divmod(half * 16 + lane, 4) for lane in range(16)]
        yield "sums", [4 * (row * tiling.pitch + tiling.exchanged(row, 2 * pair)) for row, pair in quads], 8
    for start in range(0, 4 * tiling.columns, MATRIX):
        vectors = [divmod(start + lane, tiling.columns // STORED) for lane in range(MATRIX)]
        places = [row * tiling.pitch + tiling.exchanged(row, STORED * vector) for row, vector in vectors]
        yield "results", [4 * place for place in places], 16
