"""The arguments behind the operands of an anchor: through stages that only move, widen or fill up."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from host.lowering.quantised.row_major import VALUES
from host.schedules.workload import Access, Move, Stage, Workload

# Bytes that one copy takes at most, and that one row of a matrix that `ldmatrix` loads has.
CHUNK_BYTES = 16


@dataclass(frozen=True)
class Source:
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


def neighbours(anchor: Stage, access: Access, inner: int) -> int:
    """Neighbours along an axis that lie in memory side by side and begin at a multiple of their number.

    At most as many as 16 bytes hold.
    """
    first, *later = access.moves[inner]
    if access.offset(inner, 1) != 1:
        return 1
    chunk = CHUNK_BYTES // access.element_bytes
    return begins_at(access, inner, math.gcd(chunk, first.count if later else anchor.axes[inner].extent))


def begins_at(access: Access, inner: int, most: int) -> int:
    """The greatest divisor of `most` at whose multiples neighbours along an axis begin, wherever others are.

    A vector of so many elements is aligned in memory: a GPU faults at one that is not.

    Args:
        access: whose index no data decides.
        inner: axis along which elements are neighbours.
        most: neighbours that are wanted.
    """
    strides = [access.offset(inner, move.every) for move in access.moves[inner][1:]]
    # The first element's own place counts too: a part of a matrix may begin anywhere.
    strides += [place * math.prod(access.shape[dim + 1 :]) for dim, place in enumerate(access.origin)]
    for axis, moves in enumerate(access.moves):
        if axis != inner:
            strides += [access.offset(axis, move.every) for move in moves]
    return math.gcd(most, *strides)


def aligned_vector(stages: Iterable[Stage], most: int) -> int:
    """Neighbours along the last axes of stages that are aligned wherever they lie, a divisor of `most`.

    What stages pass to each other counts too: an element of an argument may be read in another one's place.
    Elements that lie apart, or are the same for all neighbours, are not read as vectors.
    """
    return math.gcd(
        most,
        *(
            begins_at(access, len(stage.axes) - 1, most)
            for stage in stages
            for access in (*stage.reads, stage.write)
            if not access.data_dependent and stage.axes and access.strides[-1] == 1
        ),
    )


def source_of(workload: Workload, access: Access) -> Source | None:
    """The argument behind the stages before the anchor; None where they compute, or it has other numbers.

    The values of a quantised weight are a source of their own, which has no argument.
    """
    found = behind(workload, access)
    if found is None or isinstance(found, Source):
        return found
    access, bordered, fills = found
    known = access.argument and not access.data_dependent and len(fills) <= 1
    fill = int(max(fills, default=0.0))
    # Floats are filled up with zeros only: a fill is a whole number.
    if not known or (fill and not access.type.name.endswith("int8")) or fill != max(fills, default=0.0):
        return None
    return Source(access, bordered, fill)


def behind(
    workload: Workload, access: Access
) -> tuple[Access, frozenset[int], frozenset[float]] | Source | None:
    """What lies behind stages that only move, widen or fill up: None where one computes.

    Returns:
        An access by the axes of the anchor, which may be none of an argument; axes along which it may be a
        fill, not read; and what it is filled up with. Of the values of a quantised weight, their source.
    """
    bordered, fills = frozenset[int](), set[float]()
    made = {stage.write.buffer: stage for stage in workload.stages[: workload.anchor]}
    while access.buffer in made:
        stage = made[access.buffer]
        if stage.name == VALUES:
            weight = stage.reads[0]
            return Source(access, stored=weight.elements * weight.element_bytes / access.elements)
        if not _only_moves(stage):
            return None
        bordered |= _bordered(access, stage)
        if stage.kind == "padding" and stage.fill is not None:
            fills.add(stage.fill)
        access = through(access, stage.reads[0])
    return access, bordered, frozenset(fills)


def _only_moves(stage: Stage) -> bool:
    """Whether all that a stage writes is what it reads, in another place or type, or a constant."""
    fills = stage.kind == "padding" and stage.fill is not None
    if not fills and (stage.kind != "injective" or stage.conditional):
        return False
    if stage.flops_per_point or stage.expensive:
        return False
    if len(stage.reads) != 1 or stage.reads[0].data_dependent or not in_order(stage):
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


def in_order(stage: Stage) -> bool:
    """Whether the axes of a stage are the dimensions that it writes."""
    if len(stage.axes) != len(stage.write.shape) or any(stage.write.origin):
        return False
    return all(
        all(move.steps == unit(axis, len(stage.axes)) for move in moves)
        for axis, moves in enumerate(stage.write.moves)
    )


def unit(place: int, length: int) -> tuple[int, ...]:
    """The direction of one dimension of several."""
    return tuple(int(other == place) for other in range(length))


def through(access: Access, source: Access) -> Access:
    """An access to what a stage writes as one to what the stage reads.

    Args:
        access: to what a stage writes, whose axes are its dimensions.
        source: one of that stage's reads, whose indices are linear.
    """

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
