"""Bytes that a loop nest moves into a memory level, from footprints."""

from __future__ import annotations

from typing import NamedTuple

from host.schedules.workload import Access
from targets import HardwareModel

# Tiles of one buffer whose bytes are kept: a construction asks for the same ones again and again.
_KNOWN_TILES = 1 << 14


class Loop(NamedTuple):
    """One loop of a nest; an estimate makes hundreds of thousands of them for a model.

    Attributes:
        axis: the axis of the stage that it advances.
        trips: iterations.
    """

    axis: int
    trips: int


def steps_of(access: Access, tile: dict[int, int]) -> list[tuple[int, int]]:
    """The regular steps in memory that a tile makes: each one's elements, and how many iterations it has.

    Args:
        access: the buffer and its strides, elements.
        tile: iterations of the tile by axis; axes left out count one.
    """
    steps: list[tuple[int, int]] = []
    for axis, extent in tile.items():
        group, block = access.groups[axis]
        stride = abs(access.strides[axis])
        if group and extent > group:
            steps.append((stride, group))
            steps.append((abs(block), -(-extent // group)))
        elif stride and extent > 1:
            steps.append((stride, extent))
    return [step for step in steps if step[0] and step[1] > 1]


def copy_seconds(size_bytes: float, hardware: HardwareModel) -> float:
    """Seconds that a copy of a buffer costs, made before the nest that reads it.

    Nothing is computed meanwhile that could hide its reads, and the nest reads the copy again: twice the
    bytes, from the level that holds buffer and copy. The copy's own lines have been displaced since they
    were used last: they come from the level behind the one that holds the copy, and go back there.
    Depthwise convolutions of 112x112x32 and 56x56x144 with a copy of 1.7 and 1.9 MB take 250 and 240 us
    longer inside of a model than without (an AMD EPYC with AVX2).

    Args:
        size_bytes: of the copy.
        hardware: of the board.
    """
    near = hardware.level_of(2.0 * size_bytes)
    own = hardware.levels.index(hardware.level_of(size_bytes))
    behind = hardware.levels[min(own + 1, len(hardware.levels) - 1)]
    return 2.0 * size_bytes * (1.0 / near.bandwidth_bytes_per_s + 1.0 / behind.bandwidth_bytes_per_s)


def footprint_bytes(access: Access, tile: dict[int, int], line_bytes: int = 64) -> float:
    """Bytes of the distinct cache lines touched by a tile.

    Axes that move by steps which overlap (a window over a row) are united into one dimension; the
    innermost dimension is rounded up to whole lines.

    Args:
        access: the buffer and its strides, elements.
        tile: iterations of the tile by axis; axes left out count one.
        line_bytes: length of a cache line.
    """
    iterations = tile.get
    key = (line_bytes, *[iterations(axis, 1) for axis in access.used_axes])
    known = access.tile_bytes
    found = known.get(key)
    if found is None:
        if len(known) >= _KNOWN_TILES:
            known.clear()
        found = known[key] = _tile_bytes(access, tile, line_bytes)
    return found


def _tile_bytes(access: Access, tile: dict[int, int], line_bytes: int) -> float:
    dims: list[list[int]] = []
    for stride, extent in sorted(steps_of(access, tile)):
        if dims and stride <= dims[-1][0] * dims[-1][1]:
            dims[-1][1] += stride // dims[-1][0] * (extent - 1)
        else:
            dims.append([stride, extent])
    run = 1
    if dims and dims[0][0] * access.element_bytes < line_bytes:
        run = dims[0][0] * (dims[0][1] - 1) + 1
        dims = dims[1:]
    lines = -(-run * access.element_bytes // line_bytes)
    total = float(lines * line_bytes)
    for _, extent in dims:
        total *= extent
    return min(total, float(max(line_bytes, access.elements * access.element_bytes)))


class Inner(NamedTuple):
    """The innermost loops of a nest, which nests that differ outside of them share.

    Attributes:
        nest: outermost first.
        tile: iterations of all of them, by axis.
        rows: their `footprints`.
    """

    nest: tuple[Loop, ...]
    tile: dict[int, int]
    rows: list[list[float]]


def inner_of(accesses: tuple[Access, ...], nest: tuple[Loop, ...]) -> Inner:
    """Loops that others are put around."""
    tile: dict[int, int] = {}
    for axis, trips in nest:
        tile[axis] = tile.get(axis, 1) * trips
    return Inner(nest, tile, footprints(accesses, nest))


def footprints(
    accesses: tuple[Access, ...], nest: tuple[Loop, ...], inner: Inner | None = None
) -> list[list[float]]:
    """Bytes of each buffer that the loops from each depth inwards touch, outermost depth first.

    Args:
        accesses: buffers read and written.
        nest: loops, outermost first.
        inner: loops inside of these.

    Returns:
        A row more than there are loops: row d is what one iteration of the loops outside of depth d uses.
    """
    tile = {} if inner is None else dict(inner.tile)
    rows = [[footprint_bytes(access, tile) for access in accesses]] if inner is None else inner.rows[::-1]
    row = rows[-1]
    for axis, trips in reversed(nest):
        tile[axis] = tile.get(axis, 1) * trips
        row = row.copy()
        for position, access in enumerate(accesses):
            # A loop that does not move an access touches nothing more of it.
            if axis in access.used:
                row[position] = footprint_bytes(access, tile)
        rows.append(row)
    return rows[::-1]


def traffic_bytes(
    accesses: tuple[Access, ...],
    nest: tuple[Loop, ...],
    sizes: list[list[float]],
    capacity_bytes: float,
    factors: tuple[float, ...] = (),
) -> float:
    """Bytes that a nest brings into a memory of the given capacity.

    The working set of an inner part of the nest stays resident if it fits; every iteration of the loops
    around it brings in what it uses, except for a buffer that the loops directly around do not move
    (Roller's traffic, OSDI'22 section 4, read off an ordered nest instead of one tile per level).

    Args:
        accesses: buffers read and written.
        nest: loops, outermost first.
        sizes: their `footprints`.
        capacity_bytes: of the memory.
        factors: what a byte of each buffer counts if not all of them fit; one each if left out.
    """
    fitting = next((d for d, used in enumerate(sizes) if sum(used) <= capacity_bytes), len(nest))
    outside = nest[:fitting][::-1]
    total = 0.0
    for position, access in enumerate(accesses):
        moved, used, resident = sizes[fitting][position], access.used, True
        for axis, trips in outside:
            if resident and axis not in used:
                continue
            resident = False
            moved *= trips
        total += max(moved, sizes[0][position]) * (factors[position] if factors and fitting else 1.0)
    return total
