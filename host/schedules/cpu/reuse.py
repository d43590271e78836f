"""Cache lines that a loop nest fetches, and how many of them more than once."""

from __future__ import annotations

import numpy as np

from host.schedules.cpu.traffic import Loop, footprint_bytes, steps_of
from host.schedules.workload import Access
from targets import MemoryLevel

# Share of a cache that a nest's own lines have.
_OWN_SHARE = 0.75
# Lines whose sets are counted; a tile of more of them is larger than a first level anyway.
_MOST_LINES = 4096
# Share of the lines of a full set that stay: a line of another buffer that comes into the set displaces one,
# which may displace the next.
_KEPT_IN_FULL_SETS = 0.5


def fetched_lines(
    accesses: tuple[Access, ...], nest: tuple[Loop, ...], level: MemoryLevel, indexed: bool
) -> list[float]:
    """Lines of each buffer that a nest fetches into a memory level.

    From the innermost loop outwards: neighbouring iterations of a loop share the lines that are touched by
    both. Such lines are still there if all that one iteration touches fits, in size and in the sets of the
    level (distances of reuse as in Beyls and D'Hollander, "Reuse distance as a metric for cache behavior",
    2001, taken from footprints). Otherwise each iteration fetches them again.

    Args:
        accesses: buffers read and written.
        nest: loops, outermost first.
        level: that is fetched into.
        indexed: whether addresses inside a buffer decide the set, as they do in a first level. Sets of larger
            caches depend on where the system has put the pages.

    Returns:
        Lines by buffer, at least those that it has.
    """
    tile: dict[int, int] = {}
    inner = [footprint_bytes(access, tile, level.line_bytes) for access in accesses]
    fetched = [size / level.line_bytes for size in inner]
    for loop in reversed(nest):
        wider = {**tile, loop.axis: tile.get(loop.axis, 1) * loop.trips}
        fits = sum(inner) <= _OWN_SHARE * level.size_bytes
        for position, access in enumerate(accesses):
            kept = (kept_share(access, tile, level) if indexed else 1.0) if fits else 0.0
            outer = inner[position]
            if access.uses(loop.axis):
                outer = footprint_bytes(access, wider, level.line_bytes)
            fetched[position] *= kept * outer / inner[position] + (1.0 - kept) * loop.trips
            inner[position] = outer
        tile = wider
    return fetched


def kept_share(access: Access, tile: dict[int, int], level: MemoryLevel) -> float:
    """Share of the lines of a tile whose sets of a cache have room for them.

    Counted exactly from their addresses. Of a set with more lines than ways none stays until its next use.
    """
    if not level.ways:
        return 1.0
    addresses = np.zeros(1, np.int64)
    for step, count in steps_of(access, tile):
        moved = step * access.element_bytes
        if moved * count <= level.line_bytes:
            continue
        # Neighbours within a line touch no other one.
        every = max(1, level.line_bytes // moved) if moved else count
        taken = np.arange(0, count, every, dtype=np.int64) * moved
        addresses = (addresses[:, None] + taken[None, :]).ravel()
        if len(addresses) > _MOST_LINES:
            return 0.0
    lines = np.unique(addresses // level.line_bytes)
    sets = max(1, level.size_bytes // (level.ways * level.line_bytes))
    used = np.bincount(lines % sets, minlength=1)
    room = np.where(used < level.ways, 1.0, np.where(used == level.ways, _KEPT_IN_FULL_SETS, 0.0))
    return float((used * room).sum() / used.sum())


def lines_of(access: Access, nest: tuple[Loop, ...], line_bytes: int) -> float:
    """Lines of a buffer that a nest touches."""
    tile: dict[int, int] = {}
    for loop in nest:
        tile[loop.axis] = tile.get(loop.axis, 1) * loop.trips
    return footprint_bytes(access, tile, line_bytes) / line_bytes
