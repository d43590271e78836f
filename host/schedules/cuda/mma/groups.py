"""Products in groups: columns that read other elements of the left operand from group to group.

The axis of the columns becomes two, so that groups are a batch of products. Groups that are narrower than an
instruction lie side by side in one product: its depth has the channels of all of them, its columns those of
all of them, and the right operand is zero where a column and a channel are of different groups. The zeros are
nowhere in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx

from host.lowering.ops.contraction.matrices import groups_side_by_side
from host.schedules.cuda.sources import Source
from host.schedules.workload import Access, Move, Stage


@dataclass(frozen=True)
class Groups:
    """How the columns of a product are divided.

    Attributes:
        column: axis of the columns in the function.
        size: columns of one product, those of all its groups; 0 where there are no groups.
        joined: groups of one product.
        columns: of the function, all groups together.
        deep: axis of the function along which the channels of joined groups follow each other.
        depth: iterations of that axis in one group; 1 where there is no such axis.
    """

    column: int = 0
    size: int = 0
    joined: int = 1
    columns: int = 0
    deep: int = 0
    depth: int = 1

    @property
    def own(self) -> int:
        """Columns of one group."""
        return self.size // self.joined

    @property
    def _split_deep(self) -> int:
        """The number of the axis `deep` in the split stage."""
        return self.deep + (self.deep > self.column)

    def in_function(self, values: Mapping[int, Any]) -> Mapping[int, Any]:
        """Iterations by axis of the function, of those by axis of the split stage.

        One of the left operand has no column inside of its product: its group is that of its channel.
        """
        if not self.size:
            return values
        column, deep = self.column, self._split_deep
        inside, values = values.get(column + 1, 0), dict(values)
        if self.joined > 1 and deep in values:
            if column + 1 not in values:
                inside = values[deep] // self.depth * self.own
            values[deep] = values[deep] % self.depth
        whole = values.get(column, 0) * self.size + inside
        others = {
            axis - (axis > column): value
            for axis, value in values.items()
            if axis not in (column, column + 1)
        }
        return {**others, column: whole}

    def conditions(self, values: Mapping[int, Any]) -> list[Any]:
        """What holds where an operand or a result is one of the function's; elsewhere it is zero, or nothing.

        Args:
            values: iterations by axis of the split stage.
        """
        column, deep, found = self.column, self._split_deep, []
        if self.joined > 1 and column + 1 in values and deep in values:
            found.append(tirx.EQ(values[column + 1] // self.own, values[deep] // self.depth))
        if self.size and self.columns % self.size:
            # The last product has fewer groups.
            found.append(self.in_function(values)[column] < self.columns)
        return found

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
        if self.joined == 1 and whole.extent % size:
            return None
        axes = list(anchor.axes)
        if self.joined > 1:
            axes[self.deep] = replace(axes[self.deep], extent=self.depth * self.joined)
        products = replace(whole, extent=-(-whole.extent // size))
        axes[column : column + 1] = [products, replace(whole, extent=size)]
        reads = [_split(self._side_by_side(access), column, size) for access in anchor.reads]
        found = [_split(self._side_by_side(source.access), column, size) for source in sources]
        write = _split(anchor.write, column, size)
        if write is None or None in reads or None in found:
            return None
        first, second = (
            replace(source, access=access, bordered=_shifted(source.bordered, column))
            for source, access in zip(sources, found, strict=True)
            if access is not None
        )
        known = tuple(access for access in reads if access is not None)
        return replace(anchor, axes=tuple(axes), reads=known, write=write), (first, second)

    def _side_by_side(self, access: Access) -> Access:
        """An access whose columns and depth are those of all groups of a product."""
        if self.joined == 1:
            return access
        moves = list(access.moves)
        if _group_of(access, self.column) == self.own:
            (of_group,), (along,) = _moved(access, self.column), moves[self.deep]
            steps = tuple(step * self.joined for step in of_group.steps)
            products = -(-of_group.count // self.joined)
            moves[self.column] = (Move(self.size, products, steps),)
            moves[self.deep] = (replace(along, count=along.count * self.joined),)
        else:
            # The same channels of another group are those of another column.
            nowhere = (0,) * len(access.shape)
            moves[self.deep] = (*moves[self.deep], Move(self.depth, self.joined, nowhere))
        return replace(access, moves=tuple(moves))


def groups_of(stage: Stage, first: Access, second: Access) -> Groups:
    """The groups of a product: none where no operand stays the same within groups and the other one moves.

    Args:
        stage: the product.
        first: one of its operands.
        second: the other one.
    """
    column = stage.spatial[-1]
    for left, right in ((first, second), (second, first)):
        size = _group_of(left, column)
        if size > 1 and any(move.moved and move.every < size for move in right.moves[column]):
            return _joined(stage, left, Groups(column, size, columns=stage.axes[column].extent))
    return Groups()


def _group_of(access: Access, column: int) -> int:
    """Columns within which an access stays where it is; 0 where it never moves."""
    return min((move.every for move in _moved(access, column)), default=0)


def _moved(access: Access, axis: int) -> list[Move]:
    """The moves of an axis that go to another place."""
    return [move for move in access.moves[axis] if move.moved]


def _joined(stage: Stage, left: Access, groups: Groups) -> Groups:
    """The groups that lie side by side: as many as the narrowest tile has columns for.

    Their channels follow each other along the outermost axis of those that go through a group's channels.
    """
    size, pitch = groups.size, left.offset(groups.column, groups.size)
    joined = groups_side_by_side(size, groups.columns)
    if len(_moved(left, groups.column)) != 1:
        return groups
    for axis in stage.reduction:
        extent, linear = stage.axes[axis].extent, len(left.moves[axis]) == 1
        if linear and left.offset(axis, 1) * extent == pitch:
            return replace(groups, size=size * joined, joined=joined, deep=axis, depth=extent)
    return groups


def _shifted(axes: frozenset[int], column: int) -> frozenset[int]:
    """Axes by their new numbers; both parts of the columns where those are among them."""
    both = {column + 1} if column in axes else set[int]()
    return frozenset({axis + (axis > column) for axis in axes} | both)


def _split(access: Access, column: int, size: int) -> Access | None:
    """An access whose axis of columns is two; the last group of columns need not be whole."""
    groups: list[Move] = []
    columns: list[Move] = []
    last = len(access.moves[column]) - 1
    for number, move in enumerate(access.moves[column]):
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
            if move.count % inside and number != last:
                return None
            steps = tuple(step * inside for step in move.steps)
            groups.append(Move(1, -(-move.count // inside), steps))
    moves = (*access.moves[:column], tuple(groups), tuple(columns), *access.moves[column + 1 :])
    return replace(access, moves=moves)
