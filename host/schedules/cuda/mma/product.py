"""The operands and results of a product of halves or of bytes, read off its workload.

Rows are the axes that move the left operand alone, columns those that move the right one alone, the batch
those that move both; all of them are numbered in order, as if they were one axis each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from host.lowering.quantised.row_major import VALUES
from host.schedules.workload import Access, Move, Stage, Workload

# Bytes that one copy takes at most, and that one row of a matrix that `ldmatrix` loads has.
CHUNK_BYTES = 16
# Fewer bytes are not copied by `cp.async`.
_LEAST_BYTES = 4
# Columns of two instructions, and least depth: fewer are mostly filled up with zeros.
LEAST = 16
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
    """

    stage: Stage
    batch: tuple[int, ...]
    depth: tuple[int, ...]
    left: Operand
    right: Operand
    vector: int
    kept: int
    result: Access

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
    def steps(self) -> int:
        """Products that are added up for one result, K."""
        return math.prod(self.extents(self.depth))


def product_of(workload: Workload) -> Product | None:
    """The product that a workload is, or None if it is none of halves or bytes.

    Halves are summed in single precision. Their left operand may be in single precision: a model's input is,
    and is rounded where the first layer reads it. The right one has the weights, of which those in single
    precision are what no half can hold. Bytes of either sign are summed in 32 bits.
    """
    anchor = workload.anchor_stage
    if not anchor.plain or workload.steps or len(anchor.reads) != 2 or anchor.write.type.name not in _TYPES:
        return None
    first, second = (_source(workload, access) for access in anchor.reads)
    if first is None or second is None:
        return None
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
    epilogue = _epilogue(workload, operands[right].outer)
    # `ldmatrix` turns pairs of bytes only, not bytes.
    turned = anchor.write.type.name == "int32" and not all(one.along_depth for one in operands)
    if epilogue is None or turned:
        return None
    found = Product(anchor, batch, depth, operands[1 - right], operands[right], *epilogue)
    return found if found.columns >= LEAST and found.steps >= LEAST else None


def _moves(access: Access, axis: int) -> bool:
    return any(move.moved for move in access.moves[axis])


@dataclass(frozen=True)
class _Source:
    """The argument that an operand lies in.

    Attributes:
        access: by the axes of the anchor.
        bordered: axes of the anchor along which it may be `fill`, not read.
        fill: the number of a padding stage.
        stored: bytes of an element in memory, where it is computed out of a quantised weight; else 0.
    """

    access: Access
    bordered: frozenset[int] = frozenset()
    fill: int = 0
    stored: float = 0.0


def _operand(
    anchor: Stage, source: _Source, position: int, outer: tuple[int, ...], depth: tuple[int, ...]
) -> Operand:
    access = source.access
    along_depth = not outer or access.offset(depth[-1], 1) == 1 or access.offset(outer[-1], 1) != 1
    inner = depth[-1] if along_depth else outer[-1]
    copied = access.type.name != "float32" and inner not in source.bordered and not source.stored
    width = _width(anchor, access, inner) if copied else 1
    if width * access.element_bytes < _LEAST_BYTES:
        width = 1
    stored = source.stored or float(access.element_bytes)
    return Operand(access, position, outer, along_depth, width, source.fill, stored, source.stored > 0)


def _width(anchor: Stage, access: Access, inner: int) -> int:
    """Neighbours along an axis that lie in memory side by side and begin at a multiple of their number.

    At most as many as 16 bytes hold.
    """
    first, *later = access.moves[inner]
    if access.offset(inner, 1) != 1:
        return 1
    strides = [access.offset(inner, move.every) for move in later]
    # The first element's own place counts too: a part of a matrix may begin anywhere.
    strides += [place * math.prod(access.shape[dim + 1 :]) for dim, place in enumerate(access.origin)]
    for axis, moves in enumerate(access.moves):
        if axis != inner:
            strides += [access.offset(axis, move.every) for move in moves]
    chunk = CHUNK_BYTES // access.element_bytes
    return math.gcd(chunk, first.count if later else anchor.axes[inner].extent, *strides)


def _source(workload: Workload, access: Access) -> _Source | None:
    """The argument behind the stages before the anchor; None where they compute, or it has other numbers."""
    bordered, fills = frozenset[int](), set[float]()
    made = {stage.write.buffer: stage for stage in workload.stages[: workload.anchor]}
    while access.buffer in made:
        stage = made[access.buffer]
        if stage.name == VALUES:
            weight = stage.reads[0]
            return _Source(access, stored=weight.elements * weight.element_bytes / access.elements)
        if not _only_moves(stage):
            return None
        bordered |= _bordered(access, stage)
        if stage.kind == "padding" and stage.fill is not None:
            fills.add(stage.fill)
        access = _through(access, stage)
    known = access.argument and not access.data_dependent and len(fills) <= 1
    fill = int(max(fills, default=0.0))
    # Floats are filled up with zeros only: a fill is a whole number.
    if not known or (fill and not access.type.name.endswith("int8")) or fill != max(fills, default=0.0):
        return None
    return _Source(access, bordered, fill)


def _only_moves(stage: Stage) -> bool:
    """Whether all that a stage writes is what it reads, in another place or type, or a constant."""
    fills = stage.kind == "padding" and stage.fill is not None
    if not fills and (stage.kind != "injective" or stage.conditional):
        return False
    if stage.flops_per_point or stage.expensive:
        return False
    if len(stage.reads) != 1 or stage.reads[0].data_dependent or not _in_order(stage):
        return False
    return all(len(moves) <= 1 for moves in stage.reads[0].moves)


def _bordered(access: Access, stage: Stage) -> frozenset[int]:
    """Axes of the anchor along which a padding stage fills up what it does not read."""
    if stage.kind != "padding":
        return frozenset()
    source = stage.reads[0]
    kept = set()
    for dim, axis in enumerate(stage.axes):
        places = [place for move in source.moves[dim] for place, _ in move.moved]
        if axis.extent == 1 or [(source.shape[place], source.origin[place]) for place in places] == [
            (axis.extent, 0)
        ]:
            kept.add(dim)
    return frozenset(
        axis
        for axis, moves in enumerate(access.moves)
        if any(dim not in kept for move in moves for dim, _ in move.moved)
    )


def _in_order(stage: Stage) -> bool:
    """Whether the axes of a stage are the dimensions that it writes."""
    if len(stage.axes) != len(stage.write.shape) or any(stage.write.origin):
        return False
    return all(
        all(move.steps == _unit(axis, len(stage.axes)) for move in moves)
        for axis, moves in enumerate(stage.write.moves)
    )


def _unit(place: int, length: int) -> tuple[int, ...]:
    return tuple(int(other == place) for other in range(length))


def _through(access: Access, stage: Stage) -> Access:
    """An access to what a stage writes as one to what the stage reads."""
    source = stage.reads[0]

    def moved(move: Move) -> Move:
        steps = [0] * len(source.shape)
        for dim, step in move.moved:
            for linear in source.moves[dim]:
                steps = [old + step * new for old, new in zip(steps, linear.steps, strict=True)]
        return replace(move, steps=tuple(steps))

    moves = tuple(tuple(moved(move) for move in moves) for moves in access.moves)
    start = moved(Move(1, 1, access.origin)).steps
    return replace(
        source, moves=moves, origin=tuple(a + b for a, b in zip(source.origin, start, strict=True))
    )


def _epilogue(workload: Workload, columns: tuple[int, ...]) -> tuple[int, int, Access] | None:
    """Results that are stored at once, the columns of the result, and the result itself.

    None where a later stage mixes results of the anchor, or leaves others than the last columns out.

    Args:
        workload: with the product as its anchor.
        columns: their axes.
    """
    anchor, column = workload.anchor_stage, columns[-1]
    dims = anchor.spatial
    written = [[move.steps for move in anchor.write.moves[axis]] for axis in dims]
    if dims != tuple(range(len(dims))) or any(
        steps not in ([], [_unit(dim, len(dims))]) for dim, steps in enumerate(written)
    ):
        return None
    inside = {anchor.write.buffer: dims}
    last, width = anchor, STORED
    for stage in workload.stages[workload.anchor + 1 :]:
        if stage.kind != "injective" or not _in_order(stage) or last.write.argument:
            return None
        axes = _axes_of(stage, inside)
        if axes is None:
            return None
        inside[stage.write.buffer] = axes
        width = math.gcd(width, _neighbours(stage, axes, column))
        last = stage
    if not last.write.argument:
        return None
    axes = inside[last.write.buffer]
    if column not in axes:
        return None
    place = axes.index(column)
    extents = {axis: last.axes[number].extent for number, axis in enumerate(axes)}
    cut = [axis for axis in dims if extents.get(axis, 1) != anchor.axes[axis].extent]
    if cut and (cut != [column] or len(columns) > 1):
        return None
    kept = extents[column] * math.prod(anchor.axes[axis].extent for axis in columns[:-1])
    if last.write.offset(place, 1) != 1:
        return 1, kept, last.write
    pitches = [last.write.offset(axis, 1) for axis in range(len(axes)) if axis != place]
    return math.gcd(width, extents[column], anchor.axes[column].extent, *pitches), kept, last.write


def _axes_of(stage: Stage, inside: dict[str, tuple[int, ...]]) -> tuple[int, ...] | None:
    """The anchor's axis that each axis of a later stage is, -1 for those of one iteration.

    None where the stage reads other results of the anchor than the one in its own place.
    """
    found: dict[int, int] = {}
    read = False
    for access in stage.reads:
        if access.data_dependent:
            return None
        if access.buffer not in inside:
            continue
        read = True
        if any(access.origin):
            return None
        for axis, moves in enumerate(access.moves):
            if not moves:
                continue
            if len(moves) > 1 or [step for _, step in moves[0].moved] != [1]:
                return None
            dim = moves[0].moved[0][0]
            if found.setdefault(axis, inside[access.buffer][dim]) != inside[access.buffer][dim]:
                return None
    long = [axis for axis in range(len(stage.axes)) if stage.axes[axis].extent > 1]
    if not read or any(axis not in found for axis in long):
        return None
    return tuple(found.get(axis, -1) for axis in range(len(stage.axes)))


def _neighbours(stage: Stage, axes: tuple[int, ...], column: int) -> int:
    """How many neighbours along the columns a stage can compute in a vector."""
    if column not in axes or stage.conditional:
        return 1
    place = axes.index(column)
    plain = all(
        access.offset(place, 1) in (0, 1) and len(access.moves[place]) <= 1 and access.type.name != "bool"
        for access in _accesses(stage)
    )
    return STORED if plain else 1


def _accesses(stage: Stage) -> Iterator[Access]:
    yield from stage.reads
    yield stage.write
