"""The operands and results of a product of halves or of bytes, read off its workload.

Rows are the axes that move the left operand alone, columns those that move the right one alone, the batch
those that move both; all of them are numbered in order, as if they were one axis each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from host.lowering.ops.contraction.matrices import LEAST_COLUMNS, LEAST_OF_GROUPS, LEAST_STEPS
from host.schedules.api import Decisions
from host.schedules.cuda.mma.groups import Groups, groups_of
from host.schedules.cuda.mma.window import Window, window_of
from host.schedules.cuda.results import results_of
from host.schedules.cuda.sources import CHUNK_BYTES, Source, neighbours, source_of
from host.schedules.workload import Access, Stage, Workload

# Fewer bytes are not copied by `cp.async`.
_LEAST_BYTES = 4
# Least columns of a group that has tiles of its own: it fills one.
_LEAST_OF_A_GROUP = 16
# The decision whether shared memory has all that the taps of a convolution read.
HALO = "halo"
# Sums that a thread takes through the stages after the product together.
STORED = 4

# By the type of the sums, types of the left operand and of the right one.
_TYPES = {
    "float32": (("float16", "float32"), ("float16",)),
    "int32": (("int8", "uint8"), ("int8", "uint8")),
}


@dataclass(frozen=True)
class Operand:
    """One of the two matrices.

    Attributes:
        access: of the argument that it lies in, by the axes of the anchor.
        position: among the reads of the anchor.
        outer: axes of the anchor that move it and not the other one.
        along_depth: whether neighbours along the reduction are neighbours in memory; else those along `outer`
            are, or none.
        width: neighbours that are copied at once, a divisor of a chunk's; 1 where they are rounded to halves
            on the way, or are too few for a copy.
        fill: what it is where padding is read in its place.
        stored: bytes of an element in memory.
        computed: whether it is computed out of a quantised weight.
    """

    access: Access
    position: int
    outer: tuple[int, ...]
    along_depth: bool
    width: int
    fill: int = 0
    stored: float = 0.0
    computed: bool = False


@dataclass(frozen=True)
class Product:
    """A product as the rule sees it.

    Attributes:
        stage: the anchor.
        batch, depth: axes that both operands have; the reduction is the depth.
        left, right: the operands; the right one moves with the columns.
        vector: neighbouring results that are computed and stored at once, a divisor of `STORED`.
        kept: columns of the function's result, at most those of the product.
        result: of the last stage.
        groups: of columns, if the stage has such; its axis of columns is two then, and its depth that of all
            groups of a product.
        window: what the taps of a convolution read of an image; None where it is no such convolution.
        windowed: whether the rows are numbered through the padded image, as a window wants them.
    """

    stage: Stage
    batch: tuple[int, ...]
    depth: tuple[int, ...]
    left: Operand
    right: Operand
    vector: int
    kept: int
    result: Access
    groups: Groups
    window: Window | None = None
    windowed: bool = False

    @property
    def bytes(self) -> bool:
        """Whether bytes are multiplied; else halves are."""
        return self.right.access.element_bytes == 1

    @property
    def chunk(self) -> int:
        """Elements of a chunk in shared memory."""
        return CHUNK_BYTES if self.bytes else CHUNK_BYTES // 2

    @property
    def element(self) -> str:
        """Type of the left operand in shared memory; the right one's has as many bytes."""
        return self.left.access.type.name if self.bytes else "float16"

    @property
    def sums(self) -> str:
        """Type of the sums."""
        return "int32" if self.bytes else "float32"

    @property
    def mma_depth(self) -> int:
        """Depth of one instruction: two chunks."""
        return 2 * self.chunk

    def extents(self, axes: tuple[int, ...]) -> tuple[int, ...]:
        """The numbers of iterations of these axes."""
        return tuple(self.stage.axes[axis].extent for axis in axes)

    @property
    def batches(self) -> int:
        """Number of independent matrix products."""
        return math.prod(self.extents(self.batch))

    @property
    def rows(self) -> int:
        """Rows of the result of one product, M."""
        return math.prod(self.extents(self.left.outer))

    @property
    def columns(self) -> int:
        """Columns of the result of one product, N."""
        return math.prod(self.extents(self.right.outer))

    @property
    def results(self) -> int:
        """Results of all products."""
        return self.batches * self.rows * self.columns

    @property
    def steps(self) -> int:
        """Products that are added up for one result, K."""
        return math.prod(self.extents(self.depth))


@lru_cache(maxsize=256)
def product_of(workload: Workload) -> Product | None:
    """The product that a workload is, or None if it is none of halves or bytes.

    Halves are summed in single precision. Their left operand may be in single precision: a model's input is,
    and is rounded where the first layer reads it. The right one has the weights, of which those in single
    precision are what no half can hold. Bytes of either sign are summed in 32 bits.
    """
    anchor = workload.anchor_stage
    if not anchor.plain or workload.steps or len(anchor.reads) != 2 or anchor.write.type.name not in _TYPES:
        return None
    first, second = (source_of(workload, access) for access in anchor.reads)
    if first is None or second is None:
        return None
    groups = Groups()
    if anchor.spatial:
        groups = groups_of(anchor, first.access, second.access)
        split = groups.split(anchor, (first, second)) if groups.size else (anchor, (first, second))
        if split is None:
            return None
        anchor, (first, second) = split
    long = [axis for axis in range(len(anchor.axes)) if anchor.axes[axis].extent > 1]
    used = {axis: (_moves(first.access, axis), _moves(second.access, axis)) for axis in long}
    depth = tuple(axis for axis in long if anchor.axes[axis].reduce)
    spatial = [axis for axis in long if not anchor.axes[axis].reduce]
    if not spatial or any(not any(used[axis]) for axis in spatial):
        return None
    if not depth or any(not all(used[axis]) for axis in depth) or all(used[spatial[-1]]):
        return None
    right = 1 if used[spatial[-1]][1] else 0
    lefts, rights = _TYPES[anchor.write.type.name]
    if (first, second)[right].access.type.name not in rights:
        return None
    if (first, second)[1 - right].access.type.name not in lefts:
        return None
    batch = tuple(axis for axis in spatial if all(used[axis]))
    operands = []
    for position, source in enumerate((first, second)):
        outer = tuple(axis for axis in spatial if used[axis][position] and not used[axis][1 - position])
        operands.append(_operand(anchor, source, position, outer, depth))
    columns = operands[right].outer
    results = results_of(workload, (groups.column,) if groups.size else columns, STORED)
    # `ldmatrix` turns pairs of bytes only, not bytes.
    turned = anchor.write.type.name == "int32" and not all(one.along_depth for one in operands)
    if results is None or turned:
        return None
    vector, kept, result = results
    if groups.size:
        if columns != (groups.column + 1,) or kept != workload.anchor_stage.axes[groups.column].extent:
            return None
        vector, kept = math.gcd(vector, groups.size), groups.size
    found = Product(anchor, batch, depth, operands[1 - right], operands[right], vector, kept, result, groups)
    enough = found.columns >= _least_columns(groups) and found.steps >= LEAST_STEPS
    return _with_window(found) if enough else None


def _least_columns(groups: Groups) -> int:
    """Columns of a product for which the rule is the right one."""
    if not groups.size:
        return LEAST_COLUMNS
    return LEAST_OF_GROUPS if groups.depth > 1 else _LEAST_OF_A_GROUP


def decided(product: Product, values: Decisions) -> Product:
    """The product as decisions number its rows."""
    window = product.window
    if window is None or not values.get(HALO):
        return product
    axes = list(product.stage.axes)
    axes[window.across] = replace(axes[window.across], extent=window.width)
    return replace(product, stage=replace(product.stage, axes=tuple(axes)), windowed=True)


def _with_window(product: Product) -> Product:
    left, stage = product.left, product.stage
    if not left.along_depth:
        return product
    window = window_of(stage, stage.reads[left.position], left.outer, product.depth, product.chunk)
    return replace(product, window=window)


def _moves(access: Access, axis: int) -> bool:
    return any(move.moved for move in access.moves[axis])


def _operand(
    anchor: Stage, source: Source, position: int, outer: tuple[int, ...], depth: tuple[int, ...]
) -> Operand:
    access = source.access
    along_depth = not outer or access.offset(depth[-1], 1) == 1 or access.offset(outer[-1], 1) != 1
    inner = depth[-1] if along_depth else outer[-1]
    copied = access.type.name != "float32" and inner not in source.bordered and not source.stored
    width = neighbours(anchor, access, inner) if copied else 1
    if width * access.element_bytes < _LEAST_BYTES:
        width = 1
    stored = source.stored or float(access.element_bytes)
    return Operand(access, position, outer, along_depth, width, source.fill, stored, source.stored > 0)
