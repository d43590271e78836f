"""Stream-K: the tiles of a result that fill no whole wave of blocks, dealt out to all multiprocessors.

Full waves have a block for each tile. What is left is less than a wave, which leaves multiprocessors idle; so
the steps along the depth of these tiles are numbered in order, and every block of a last full wave has an
even share of them (Osama et al., "Stream-K", arXiv 2301.03598, section on hybrids with tiles by blocks). A
share is at most as many steps as a tile has, so that it lies in one tile or in two neighbouring ones. A
second kernel adds up what shares have of each tile, always in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from tvm import s_tir, tirx

from host.schedules.cuda.epilogue import Epilogue
from host.schedules.cuda.mma import instructions as ptx
from host.schedules.cuda.mma.ends import JOINING_WARPS, end_of
from host.schedules.cuda.mma.product import STORED, Product
from host.schedules.cuda.mma.tiles import WARP, Tiling
from host.schedules.cuda.multiprocessor import occupancy
from host.schedules.cuda.nest import bound, buffer, sequence
from targets import GpuModel

# Parts of tiles that a share may have.
SEGMENTS = 2
# Share of the last wave that may be filled by tiles: beyond, there is nothing to gain.
_FULL = 0.9


class Segment(NamedTuple):
    """The part of a tile that a block computes: numbers, or expressions of its number.

    Attributes:
        tile: of the result.
        first: step along the depth.
        count: steps.
        part: place among the parts that are added up later.
    """

    tile: Any
    first: Any
    count: Any
    part: Any


@dataclass(frozen=True)
class Shares:
    """How the tiles of a result are dealt out.

    Attributes:
        tiles: of the result.
        whole: the first of them, which one block each computes.
        steps: along the depth of a tile.
        each: steps of a share, at most `steps`.
    """

    tiles: int
    whole: int
    steps: int
    each: int

    @property
    def dealt(self) -> int:
        """Tiles that shares compute."""
        return self.tiles - self.whole

    @property
    def count(self) -> int:
        """Shares."""
        return -(-self.dealt * self.steps // self.each)

    @property
    def blocks(self) -> int:
        """Thread blocks of the first kernel."""
        return self.whole + self.count

    def segments(self, block: Any) -> tuple[Any, Any]:
        """The first step of a block, all tiles numbered through, and how many tiles it has parts of."""
        share = block - self.whole
        begin = tirx.Select(
            block < self.whole, block * self.steps, self.whole * self.steps + share * self.each
        )
        length = tirx.Select(block < self.whole, self.steps, self.each)
        end = tirx.min(begin + length, self.tiles * self.steps)
        return begin, (end - 1) // self.steps - begin // self.steps + 1

    def segment(self, block: Any, begin: Any, number: Any) -> Segment:
        """A part of a tile of a block, of those that `segments` counts."""
        tile = begin // self.steps + number
        first = tirx.max(begin - tile * self.steps, 0)
        length = tirx.Select(block < self.whole, self.steps, self.each)
        last = tirx.min(tirx.min(begin + length, self.tiles * self.steps) - tile * self.steps, self.steps)
        return Segment(tile, first, last - first, (block - self.whole) * SEGMENTS + number)

    def of_tile(self, dealt: Any) -> tuple[Any, Any]:
        """The first and the last share that has a part of a dealt tile."""
        begin = dealt * self.steps
        return begin // self.each, (begin + self.steps - 1) // self.each

    def part(self, dealt: Any, share: Any) -> Any:
        """Where a share's part of a dealt tile lies among all parts."""
        return share * SEGMENTS + (dealt - share * self.each // self.steps)


def shares_of(tiling: Tiling, tiles: int, steps: int, least: int, gpu: GpuModel) -> Shares | None:
    """How a GPU's multiprocessors share tiles; None where waves are full, or nothing is left to share.

    Args:
        tiling: of the program.
        tiles: of the result.
        steps: along the depth of a tile.
        least: steps of a share.
        gpu: whose multiprocessors they are.
    """
    one = replace(tiling, splits=1)
    placed = occupancy(gpu, tiles, one.threads, one.registers, one.shared_bytes)
    slots = gpu.multiprocessors * placed.per_multiprocessor
    rest = tiles % slots
    if not rest or rest > _FULL * slots:
        return None
    each = max(least, -(-rest * steps // slots))
    return Shares(tiles, tiles - rest, steps, each) if each < steps else None


@dataclass(frozen=True)
class SharedParts:
    """The sums of parts of tiles, in memory of the GPU.

    Attributes:
        product: whose sums they are.
        tiling: of the program.
        shares: that compute them.
        buffer: [shares, segments, rows of a tile, columns of a tile], flat.
    """

    product: Product
    tiling: Tiling
    shares: Shares
    buffer: tirx.Buffer = field(init=False)

    def __post_init__(self) -> None:
        """Make the buffer."""
        size = self.shares.count * SEGMENTS * self.size
        object.__setattr__(self, "buffer", buffer("parts", size, self.product.sums, "global"))

    @property
    def size(self) -> int:
        """Elements of one part."""
        return self.tiling.block_rows * self.tiling.block_columns

    def store(self, part: Any, row: Any, column: Any, values: tirx.Buffer) -> tirx.Stmt:
        """Stores four neighbouring sums at a row and a first column of a tile."""
        begin = part * self.size + row * self.tiling.block_columns + column
        lane = tirx.Var("neighbour", "int32")
        store = tirx.BufferStore(self.buffer, tirx.BufferLoad(values, [lane]), [begin + lane])
        return tirx.For(lane, 0, STORED, tirx.ForKind.VECTORIZED, store)


def sum_of_shares(parts: SharedParts, epilogue: Epilogue) -> tirx.Stmt:
    """A kernel that adds up the parts of tiles, and ends with the stages after the product."""
    product, tiling, shares = parts.product, parts.tiling, parts.shares
    threads, quads = JOINING_WARPS * WARP, parts.size // STORED
    lane, warp, block = (tirx.Var(f"joining_{name}", "int32") for name in ("lane", "warp", "block"))
    values = buffer("joined", STORED, product.sums)
    # Tiles have at least 16 x 16 sums: blocks have one tile each.
    quad = block * threads + warp * WARP + lane
    dealt, inside = quad // quads, quad % quads
    first, last = shares.of_tile(dealt)

    def added(share: Any, more: bool) -> tirx.Stmt:
        place = (shares.part(dealt, share) * parts.size + inside * STORED) * 4
        return ptx.load_sums(values.data, parts.buffer.data, place, more, product.sums)

    further = tirx.Var("further", "int32")
    tile = shares.whole + dealt
    batch, row, column = place_of(product, tiling, tile)
    across = tiling.block_columns // STORED
    row, column = row + inside // across, column + inside % across * STORED
    steps = [
        added(first, False),
        tirx.For(further, 0, last - first, tirx.ForKind.SERIAL, added(first + 1 + further, True)),
        end_of(product, epilogue, (batch, row, column), values, tiling.block_columns),
    ]
    body = sequence(steps)
    if product.rows % tiling.block_rows:
        body = tirx.IfThenElse(row < product.rows, body, None)
    region = s_tir.SBlock([], [], [], "join", body, None, [values])
    axes = (
        (lane, WARP, "threadIdx.x"),
        (warp, JOINING_WARPS, "threadIdx.y"),
        (block, shares.dealt * quads // threads, "blockIdx.x"),
    )
    return bound(s_tir.SBlockRealize([], True, region), axes)


def tiles_of(product: Product, tiling: Tiling) -> int:
    """The tiles of the results of all products."""
    rows, columns = _tiles(product, tiling)
    return product.batches * rows * columns


def place_of(product: Product, tiling: Tiling, tile: Any) -> tuple[Any, Any, Any]:
    """Batch, first row and first column of a tile; those that run together share columns."""
    rows, columns = _tiles(product, tiling)
    batch = tile // (rows * columns) % product.batches
    return batch, tile % rows * tiling.block_rows, tile // rows % columns * tiling.block_columns


def _tiles(product: Product, tiling: Tiling) -> tuple[int, int]:
    return -(-product.rows // tiling.block_rows), -(-product.columns // tiling.block_columns)
