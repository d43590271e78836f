"""Products in groups: columns that read other elements of the left operand from group to group.

The axis of the columns becomes two, so that groups are a batch of products.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from host.schedules.cuda.sources import Source
from host.schedules.workload import Access, Axis, Move, Stage


@dataclass(frozen=True)
class Groups:
    """How the columns of a product are divided.

    Attributes:
        column: axis of the columns in the function.
        size: columns of a group; 0 where there are no groups.
    """

    column: int = 0
    size: int = 0

    def in_function(self, values: Mapping[int, Any]) -> Mapping[int, Any]:
        """Iterations by axis of the function, of those by axis of the split stage."""
        if not self.size:
            return values
        column = self.column
        joined = values.get(column, 0) * self.size + values.get(column + 1, 0)
        others = {
            axis - (axis > column): value
            for axis, value in values.items()
            if axis not in (column, column + 1)
        }
        return {**others, column: joined}

    def split(
        self, anchor: Stage, sources: tuple[Source, Source]
    ) -> tuple[Stage, tuple[Source, Source]] | None:
        """The anchor and what it reads with the groups as an axis before that of their columns.

        None where an access goes over the ends of groups in another way.

        Args:
            anchor: of a product.
            sources: its operands.
        """
        column, size = self.column, self.size
        whole = anchor.axes[column]
        if whole.extent % size:
            return None
        parts = (replace(whole, extent=whole.extent // size), replace(whole, extent=size))
        accesses = [_split(access, column, size) for access in (*anchor.reads, anchor.write)]
        found = [_split(source.access, column, size) for source in sources]
        if None in accesses or None in found:
            return None
        *reads, write = (access for access in accesses if access is not None)
        axes: tuple[Axis, ...] = (*anchor.axes[:column], *parts, *anchor.axes[column + 1 :])
        first, second = (
            replace(source, access=access, bordered=_shifted(source.bordered, column))
            for source, access in zip(sources, found, strict=True)
            if access is not None
        )
        return replace(anchor, axes=axes, reads=tuple(reads), write=write), (first, second)


def groups_of(first: Access, second: Access, column: int) -> Groups:
    """The groups of a product: none where no operand stays the same within groups and the other one moves."""
    for left, right in ((first, second), (second, first)):
        size = min((move.every for move in left.moves[column] if move.moved), default=0)
        if size > 1 and any(move.moved and move.every < size for move in right.moves[column]):
            return Groups(column, size)
    return Groups()


def _shifted(axes: frozenset[int], column: int) -> frozenset[int]:
    """Axes by their new numbers; both parts of the columns where those are among them."""
    both = {column + 1} if column in axes else set[int]()
    return frozenset({axis + (axis > column) for axis in axes} | both)


def _split(access: Access, column: int, size: int) -> Access | None:
    """An access whose axis of columns is two."""
    groups: list[Move] = []
    columns: list[Move] = []
    for move in access.moves[column]:
        if move.every >= size:
            if move.every % size:
                return None
            groups.append(replace(move, every=move.every // size))
            continue
        if size % move.every:
            return None
        inside = size // move.every
        columns.append(replace(move, count=min(move.count, inside)))
        if move.count > inside:
            if move.count % inside:
                return None
            steps = tuple(step * inside for step in move.steps)
            groups.append(Move(1, move.count // inside, steps))
    moves = (*access.moves[:column], tuple(groups), tuple(columns), *access.moves[column + 1 :])
    return replace(access, moves=moves)
