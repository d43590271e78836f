"""What becomes of sums: the stages after a product, or parts in memory that a second kernel adds up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import s_tir, tirx

from host.schedules.cuda.epilogue import Epilogue
from host.schedules.cuda.mma import instructions as ptx
from host.schedules.cuda.mma.product import STORED, Product
from host.schedules.cuda.mma.tiles import WARP
from host.schedules.cuda.nest import bound, buffer, sequence, unrolled

# Warps of a block of the kernel that adds up parts: small blocks, since there are few results.
JOINING_WARPS = 2


@dataclass(frozen=True)
class Parts:
    """The sums of the blocks that share a reduction, in memory of the GPU.

    Attributes:
        product: whose sums they are.
        splits: parts of each sum.
        buffer: [splits, batches, rows, pitch], flat.
    """

    product: Product
    splits: int
    buffer: tirx.Buffer = field(init=False)

    def __post_init__(self) -> None:
        """Make the buffer."""
        size = self.splits * self.size
        object.__setattr__(self, "buffer", buffer("parts", size, self.product.sums, "global"))

    @property
    def pitch(self) -> int:
        """Columns, rounded up to what is stored at once."""
        return -(-self.product.columns // STORED) * STORED

    @property
    def size(self) -> int:
        """Elements of one part."""
        return self.product.batches * self.product.rows * self.pitch

    def store(self, place: tuple[Any, Any, Any, Any], values: tirx.Buffer, whole: bool) -> tirx.Stmt:
        """Stores four neighbouring sums.

        Args:
            place: split, batch, row and first column.
            values: the sums.
            whole: whether all columns of the block exist.
        """
        split, batch, row, column = place
        begin = split * self.size + (batch * self.product.rows + row) * self.pitch + column
        lane = tirx.Var("neighbour", "int32")
        store = tirx.BufferStore(self.buffer, tirx.BufferLoad(values, [lane]), [begin + lane])
        statement = tirx.For(lane, 0, STORED, tirx.ForKind.VECTORIZED, store)
        return statement if whole else tirx.IfThenElse(column < self.pitch, statement, None)


def sum_of_parts(parts: Parts, epilogue: Epilogue) -> tirx.Stmt:
    """A kernel that adds up parts, always in the same order, and ends with the stages after the product."""
    product, threads = parts.product, JOINING_WARPS * WARP
    lane, warp, block = (tirx.Var(f"joining_{name}", "int32") for name in ("lane", "warp", "block"))
    values = buffer("joined", STORED, product.sums)
    quad = block * threads + warp * WARP + lane
    quads = parts.size // STORED
    added = [
        ptx.load_sums(
            values.data, parts.buffer.data, (split * parts.size + quad * STORED) * 4, split > 0, product.sums
        )
        for split in range(parts.splits)
    ]
    across = parts.pitch // STORED
    place = (quad // (across * product.rows), quad // across % product.rows, quad % across * STORED)
    body = sequence([*added, end_of(product, epilogue, place, values, STORED)])
    if quads % threads:
        body = tirx.IfThenElse(quad < quads, body, None)
    region = s_tir.SBlock([], [], [], "join", body, None, [values])
    axes = (
        (lane, WARP, "threadIdx.x"),
        (warp, JOINING_WARPS, "threadIdx.y"),
        (block, -(-quads // threads), "blockIdx.x"),
    )
    return bound(s_tir.SBlockRealize([], True, region), axes)


def end_of(
    product: Product, epilogue: Epilogue, place: tuple[Any, Any, Any], values: tirx.Buffer, tile: int
) -> tirx.Stmt:
    """Computes and stores what becomes of four neighbouring sums.

    Args:
        product: whose sums they are.
        epilogue: the stages after it.
        place: batch, row and first column.
        values: the sums.
        tile: columns that are computed together; where they are more than the result has, some are left out.
    """
    batch, row, column = place
    width, whole = product.vector, epilogue.columns % tile == 0

    def iterations(number: Any) -> dict[int, Any]:
        return {
            **digits(batch, product.batch, product),
            **digits(row, product.left.outer, product),
            **digits(column + number, product.right.outer, product),
        }

    def stored(part: Any) -> tirx.Stmt:
        def one(lane: Any) -> tirx.Stmt:
            own = product.groups.in_function(iterations(part * width + lane))
            return epilogue.store(own, tirx.BufferLoad(values, [part * width + lane]))

        statement = one(0)
        if width > 1:
            lane = tirx.Var("neighbour", "int32")
            statement = tirx.For(lane, 0, width, tirx.ForKind.VECTORIZED, one(lane))
        place = iterations(part * width)
        conditions = product.groups.conditions(place)
        if product.windowed and product.window is not None:
            conditions.append(place[product.window.across] < product.window.kept)
        if not whole:
            conditions.append(column + part * width < epilogue.columns)
        for condition in conditions:
            statement = tirx.IfThenElse(condition, statement, None)
        return statement

    return unrolled(STORED // width, stored)


def digits(number: Any, axes: Sequence[int], product: Product) -> dict[int, Any]:
    """The iteration of each of some axes that are numbered together, the last one fastest."""
    found = {}
    for axis in reversed(axes[1:]):
        extent = product.stage.axes[axis].extent
        found[axis] = number % extent
        number = number // extent
    if axes:
        found[axes[0]] = number
    return found
