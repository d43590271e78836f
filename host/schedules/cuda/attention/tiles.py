"""The tiles of a program of attention: of blocks, warps and shared memory, and where each chunk lies.

Shared memory holds chunks of eight halves. Rows of keys and values have an odd number of them, one of which
may be empty: eight rows of a matrix that `ldmatrix` reads lie in different banks then, and so do the eight
rows that neighbouring threads copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from host.schedules.api import Decisions
from host.schedules.cuda.attention.shape import CHUNK, UNIT, AttentionShape, Operand
from host.schedules.cuda.sources import CHUNK_BYTES

WARP = 32
# Columns of one mma.sync.m16n8k16, and rows of a matrix that `ldmatrix` loads.
MMA_COLUMNS, MATRIX = 8, 8
# Sums of a lane of one product, and those of its rows: two in each tile of 16 rows.
SUMS, ROWS_OF_LANE = 4, 2
# Registers of a thread beside sums, operands and what it knows of its rows.
_OTHER_REGISTERS = 40


@dataclass(frozen=True)
class KeptTile:
    """Keys or values of a stage in shared memory.

    Attributes:
        rows: of chunks; a multiple of 8.
        chunks: of a row.
        pieces: copies of a chunk.
        gathered: whether a chunk is gathered in registers, element by element.
    """

    rows: int
    chunks: int
    pieces: int
    gathered: bool

    @property
    def pitch(self) -> int:
        """Chunks from one row to the next."""
        return self.chunks | 1

    @property
    def bytes(self) -> int:
        """Size in shared memory."""
        return self.rows * self.pitch * CHUNK_BYTES

    @property
    def copies(self) -> int:
        """Copies of all threads together."""
        return self.rows * self.chunks * self.pieces

    def place(self, row: int, chunk: int) -> int:
        """Byte of the tile at which a chunk begins."""
        return (row * self.pitch + chunk) * CHUNK_BYTES


@dataclass(frozen=True)
class Tiling:
    """The tiles that decisions describe.

    Attributes:
        rows: of a warp's tile.
        columns: keys that a warp takes at a time.
        warps: tiles of rows of a block.
        slices: groups of warps that share the columns.
        stages: tiles of keys and values in shared memory, all but one on their way; with one, none is.
        keys, values: a stage of each.
        shape: of the attention.
    """

    rows: int
    columns: int
    warps: int
    slices: int
    stages: int
    keys: KeptTile
    values: KeptTile
    shape: AttentionShape

    @property
    def block_rows(self) -> int:
        """Rows of queries of a block."""
        return self.rows * self.warps

    @property
    def block_columns(self) -> int:
        """Keys of a stage."""
        return self.columns * self.slices

    @property
    def row_blocks(self) -> int:
        """Blocks of one head."""
        return -(-self.shape.rows // self.block_rows)

    @property
    def turns(self) -> int:
        """Stages that all keys of a head fill."""
        return -(-self.shape.columns // self.block_columns)

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return WARP * self.warps * self.slices

    @property
    def strips(self) -> int:
        """Tiles of 16 rows of a warp."""
        return self.rows // UNIT

    @property
    def scores(self) -> int:
        """Scores that a thread holds."""
        return self.rows * self.columns // WARP

    @property
    def sums(self) -> int:
        """Sums of the result that a thread holds."""
        return self.rows * self.shape.width_units * UNIT // WARP

    @property
    def kept_rows(self) -> int:
        """Rows of which a thread holds the maximum and the total."""
        return ROWS_OF_LANE * self.strips

    @property
    def query_words(self) -> int:
        """Registers of a thread for its queries."""
        return self.strips * self.shape.depth_units * 4

    @property
    def operand_words(self) -> int:
        """Registers of a thread for the keys or values of a turn."""
        return max(self.columns, self.shape.width_units * UNIT) // UNIT * 4

    @property
    def stage_bytes(self) -> int:
        """Bytes of keys and values of a stage."""
        return self.keys.bytes + self.values.bytes

    @property
    def part_words(self) -> int:
        """Words that a thread hands over where slices are added up."""
        return self.sums + 2 * self.kept_rows

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block: keys and values, in the end what slices hand over."""
        parts = 4 * WARP * self.warps * (self.slices - 1) * self.part_words
        return max(self.stages * self.stage_bytes, parts)

    @property
    def registers(self) -> int:
        """Registers that a thread needs, estimated."""
        rows = 3 * self.kept_rows
        return self.scores + self.sums + self.query_words + 2 * self.operand_words + rows + _OTHER_REGISTERS

    def rounds(self, tile: KeptTile) -> int:
        """Copies that a thread sends for a tile, at most."""
        return -(-tile.copies // self.threads)


def tiling_of(shape: AttentionShape, values: Decisions) -> Tiling:
    """The tiles of a program."""
    rows = values["columns"] * values["slices"]

    def tile(operand: Operand, units: int) -> KeptTile:
        gathered = operand.width == 1
        return KeptTile(rows, 2 * units, 1 if gathered else CHUNK // operand.width, gathered)

    return Tiling(
        rows=values["rows"],
        columns=values["columns"],
        warps=values["warps"],
        slices=values["slices"],
        stages=values["stages"],
        keys=tile(shape.key, shape.depth_units),
        values=tile(shape.value, shape.width_units),
        shape=shape,
    )


def shared_accesses(tiling: Tiling) -> Iterator[tuple[str, list[int], int]]:
    """The accesses of a warp to keys and values: a name, where its lanes begin, and bytes of each.

    Lanes that shared memory serves together stand together, as in `cuda.mma.tiles`.
    """
    for name, tile in (("keys", tiling.keys), ("values", tiling.values)):
        for first in range(0, tile.rows, MATRIX):
            for chunk in range(tile.chunks):
                places = [tile.place(first + lane, chunk) for lane in range(MATRIX)]
                yield f"ldmatrix {name}", places, CHUNK_BYTES
                size = CHUNK_BYTES // tile.pieces
                pieces = [place + piece * size for place in places for piece in range(tile.pieces)]
                yield f"copy {name}", pieces, size
