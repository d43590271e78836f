"""An output whose neighbours lie apart in an input, as two groups of axes: a transposition of a matrix.

`rows` are axes along which the input's neighbours lie, `columns` those of the output's. A block moves a tile
of rows and columns: it reads along rows, writes along columns, and turns the tile in shared memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from host.schedules.cuda.common import sizes_up_to
from host.schedules.cuda.sources import in_order, neighbours, through
from host.schedules.cuda.tiled.banks import apart
from host.schedules.workload import Access, Stage, Workload

# Sides of a tile. A group of axes takes no further one when it fills the largest.
_SIDES = (1, 2, 4, 8, 16, 32, 64)
# The least side where an extent has room for it: 32 bytes of halves are a transaction.
_LEAST_SIDE = 16
_WARP = 32


@dataclass(frozen=True)
class Transposition:
    """An output and inputs of another order.

    Attributes:
        stage: which writes the output.
        accesses: to all arguments that are read, by its axes.
        turned: those that are read along rows.
        rows: axes, innermost in the inputs first.
        columns: axes, innermost in the output first.
        outer: further axes in the output's order.
    """

    stage: Stage
    accesses: tuple[Access, ...]
    turned: tuple[Access, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    outer: tuple[int, ...]

    def extents(self, axes: tuple[int, ...]) -> tuple[int, ...]:
        """Iterations of axes."""
        return tuple(self.stage.axes[axis].extent for axis in axes)

    def size(self, axes: tuple[int, ...]) -> int:
        """Iterations of axes together."""
        return math.prod(self.extents(axes))

    def sides(self, axes: tuple[int, ...]) -> tuple[int, ...]:
        """Sides of a tile along a group: powers of two, as the layout of a tile in shared memory wants."""
        sizes = sizes_up_to(_SIDES, self.size(axes))
        return tuple(size for size in sizes if size >= _LEAST_SIDE) or sizes[-1:]

    @property
    def fetches(self) -> int:
        """Neighbours along rows that one access can load."""
        return max(neighbours(self.stage, access, self.rows[0]) for access in self.turned)

    @property
    def stores(self) -> int:
        """Neighbours along columns that one access can store."""
        return neighbours(self.stage, self.stage.write, self.columns[0])


@dataclass(frozen=True)
class Layout:
    """Where the elements of a tile lie in shared memory: a line of `rows` elements for each column.

    Attributes:
        rows: of the tile, a power of two.
        chunk: neighbours along rows that stay together.
        every: columns after which the permutation of a line's chunks is another one.
        folded: whether columns in between have other permutations too.
        store: neighbours along rows that one access stores, of one chunk.
    """

    rows: int
    chunk: int
    every: int
    folded: bool
    store: int

    @property
    def chunks(self) -> int:
        """Of a line, a power of two."""
        return self.rows // self.chunk

    def place(self, row: int, column: int) -> int:
        """The number of an element, of integers or of expressions."""
        if self.chunks == 1:
            return column * self.rows + row
        key = column // self.every % self.chunks
        if self.folded:
            key = key ^ (column % self.every % self.chunks)
        return column * self.rows + ((row // self.chunk) ^ key) * self.chunk + row % self.chunk


@lru_cache(maxsize=4096)
def layout_of(rows: int, columns: int, fetch: int, vector: int, size: int) -> Layout | None:
    """A layout in which no threads of a warp meet in a bank; None if there is none.

    Sides and vectors are powers of two, so that a place is linear in the bits of row and column (as vectors
    over two elements). All warps then meet as often as the first one, in all of its turns.

    Args:
        rows: side of the tile.
        columns: the other side.
        fetch: neighbours along rows that a thread has.
        vector: neighbours along columns that a thread reads one after the other.
        size: bytes of an element.
    """
    for layout in _layouts(rows, columns, fetch, size):
        stored = (n for n in range(0, min(_WARP * fetch, rows * columns), fetch))
        read = (n for n in range(0, min(_WARP * vector, rows * columns), vector))
        stores = tuple(layout.place(n % rows, n // rows) * size for n in stored)
        loads = tuple(layout.place(n // columns, n % columns) * size for n in read)
        if apart(stores, layout.store * size) and apart(loads, size):
            return layout
    return None


def _layouts(rows: int, columns: int, fetch: int, size: int) -> Iterator[Layout]:
    """Layouts of a tile, those with the widest stores first."""
    store = fetch
    while store:
        chunk = store
        while chunk <= rows:
            every = 1
            while every <= columns:
                yield Layout(rows, chunk, every, False, store)
                if every > 1:
                    yield Layout(rows, chunk, every, True, store)
                every *= 2
            chunk *= 2
        store //= 2


@lru_cache(maxsize=256)
def transposition_of(workload: Workload) -> Transposition | None:
    """The transposition that a chain of elements is; None where neighbours are neighbours everywhere."""
    last = workload.stages[-1]
    outputs = [stage for stage in workload.stages if stage.write.argument]
    plain = all(stage.kind == "injective" and not stage.conditional for stage in workload.stages)
    accesses = argument_accesses(workload, last)
    if not plain or outputs != [last] or not in_order(last) or accesses is None:
        return None
    long = [axis for axis in range(len(last.axes)) if last.axes[axis].extent > 1]
    if len(long) < 2:
        return None
    first = {access: _first_row(access, long) for access in accesses}
    crossed = [access for access in accesses if first[access] is not None]
    if not crossed:
        return None
    most = max(crossed, key=lambda access: (access.elements * access.element_bytes, access.buffer))
    row = first[most]
    assert row is not None, "it is among those that cross"
    turned = tuple(access for access in crossed if first[access] == row)
    rows, columns = _groups(last, most, row, long)
    outer = tuple(axis for axis in long if axis not in (*rows, *columns))
    return Transposition(last, accesses, turned, rows, columns, outer)


def argument_accesses(workload: Workload, last: Stage) -> tuple[Access, ...] | None:
    """What the last stage reads of arguments through the stages before it, by its own axes.

    None where that is not known: an index that data decides, or a stage between that reads with indices
    which are not linear.
    """
    made = {stage.write.buffer: stage for stage in workload.stages}
    found: dict[Access, None] = {}
    left = list(last.reads)
    while left:
        access = left.pop()
        stage = made.get(access.buffer)
        if access.data_dependent or (stage is not None and not in_order(stage)):
            return None
        if stage is None:
            found[access] = None
            continue
        for source in stage.reads:
            if source.data_dependent or any(len(moves) > 1 for moves in source.moves):
                return None
            left.append(through(access, source))
    return tuple(found)


def _step(access: Access, axis: int) -> int:
    """Elements moved in memory by each step along an axis, 0 where steps differ."""
    return access.offset(axis, 1) if len(access.moves[axis]) == 1 else 0


def _first_row(access: Access, long: list[int]) -> int | None:
    """The axis along which the neighbours of an input lie that are no neighbours of the output's."""
    if _step(access, long[-1]) in (0, 1):
        return None
    return next((axis for axis in long[:-1] if _step(access, axis) == 1), None)


def _groups(
    last: Stage, access: Access, row: int, long: list[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The axes of rows and of columns: each group goes on while it is short and memory goes on."""
    rows, columns = [row], [long[-1]]
    while True:
        taken = {*rows, *columns}
        length = math.prod(last.axes[axis].extent for axis in rows)
        width = math.prod(last.axes[axis].extent for axis in columns)
        before = long.index(columns[-1]) - 1
        further = next((axis for axis in long if axis not in taken and _step(access, axis) == length), None)
        beside = long[before] if before >= 0 and long[before] not in taken else None
        growing = [
            (size, number, axis)
            for number, (size, axis) in enumerate(((length, further), (width, beside)))
            if axis is not None and size < _SIDES[-1]
        ]
        if not growing:
            return tuple(rows), tuple(columns)
        _, number, axis = min(growing)
        (rows, columns)[number].append(axis)
