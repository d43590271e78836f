"""The copies of operands in shared memory: where their elements lie, and how threads read them.

A copy can have room behind its rows and behind its planes, so that these begin in other banks than without.
What counts is only where they begin modulo the bytes that all banks serve at once, a turn.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache

from host.schedules.api import Decisions
from host.schedules.cuda.tiled.banks import ALL_BANKS, WORD, apart, bank_passes
from host.schedules.cuda.tiled.roles import CudaRoles, block_of, fetch_width, staged_tile
from host.schedules.workload import Access, Stage
from targets import GpuModel

# Bytes at whose multiples TVM lets arrays in shared memory begin.
_ALIGNED = 64
_WARP = 32


def column_vector(anchor: Stage, values: Decisions) -> int:
    """Neighbouring columns that a thread computes by one statement."""
    accesses = (*anchor.reads, anchor.write)
    if not values["stage"] or any(access.type.name != "float32" for access in accesses):
        return 1
    return math.gcd(values["cols"], 4)


def loaded(anchor: Stage, roles: CudaRoles, access: Access, values: Decisions) -> int:
    """Neighbours that a thread loads at once from the copy of an operand."""
    return column_vector(anchor, values) if access.strides[roles.column] == 1 else 1


def turn_of(access: Access) -> int:
    """Elements of an operand that all banks serve at once."""
    return ALL_BANKS // access.element_bytes


def layout(anchor: Stage, roles: CudaRoles, access: Access, values: Decisions) -> tuple[int, ...] | None:
    """Elements between neighbours along each dimension of the copy of an operand, with the least room.

    Neither the loads of a warp nor the stores of a copy meet in a bank. None where there is no such layout,
    or where it is not known what TVM copies.

    Args:
        anchor: the stage.
        roles: of its axes.
        access: the operand.
        values: decisions that stage operands.
    """
    region = access.region(staged_tile(anchor, roles, values))
    if not _is_exact(anchor, roles, access, values, region):
        return None
    fetch = fetch_width(access, region, values["fetch"])
    return _layout(access, _lanes(roles, values), region, fetch, loaded(anchor, roles, access, values))


def _is_exact(
    anchor: Stage, roles: CudaRoles, access: Access, values: Decisions, region: tuple[int, ...]
) -> bool:
    """Whether TVM copies just the region, or more of its outermost dimension.

    Of a tile that does not divide its axis it may copy as much as a whole one would need.
    """
    block = block_of(values)
    for axis, tile in ((roles.column, block.columns), (roles.row, block.rows), (roles.second, block.seconds)):
        if axis is None or not anchor.axes[axis].extent % tile or not access.moves[axis]:
            continue
        for dim, _ in access.moves[axis][-1].moved:
            others = (moves for other, moves in enumerate(access.moves) if other != axis)
            shared = any(step == dim for moves in others for move in moves for step, _ in move.moved)
            if shared or any(extent > 1 for extent in region[:dim]):
                return False
    return True


# An axis, the threads along it, and iterations of it from one thread to the next.
_Lanes = tuple[tuple[int | None, int, int], ...]


def _lanes(roles: CudaRoles, values: Decisions) -> _Lanes:
    return (
        (roles.column, values["tx"], values["cols"]),
        (roles.row, values["ty"], values["rows"]),
        (roles.second, values["tz"], values["rows2"]),
    )


@lru_cache(maxsize=4096)
def _layout(
    access: Access, lanes: _Lanes, region: tuple[int, ...], fetch: int, width: int
) -> tuple[int, ...] | None:
    size = access.element_bytes
    threads = math.prod(count for _, count, _ in lanes)
    for pitches in _layouts(region, fetch, math.lcm(fetch, width), size, threads):
        # The first warp decides most cases.
        counts = (_WARP, threads) if threads > _WARP else (threads,)
        if all(apart(_starts(access, lanes, pitches, count), width * size) for count in counts):
            return pitches
    return None


def _layouts(
    region: tuple[int, ...], fetch: int, unit: int, size: int, threads: int
) -> Iterator[tuple[int, ...]]:
    """Layouts of a copy in which its stores do not meet, the one without room first.

    Stores follow each other along the tile. Those that are served together take a window of neighbours; where
    it goes over the end of a row, the next row has to begin in the bank that follows.

    Args:
        region: extents of the copy.
        fetch: elements of a store.
        unit: elements that loads and stores are aligned to.
        size: bytes of an element.
        threads: of a block.
    """
    compact = _compact(region)
    if any(pitch % unit for pitch in compact[:-1]):
        return
    yield compact
    if len(region) < 2:
        return
    turn = ALL_BANKS // size
    window = ALL_BANKS // max(WORD, fetch * size) * fetch
    # Windows begin at multiples of their length, or anywhere.
    whole = threads * fetch % window == 0
    row, second = region[-1], region[-2]
    for room in range(0, turn, unit) if whole else (0,):
        pitch = row + room
        # Rows share a window where they begin at odd multiples of their length, a power of two.
        alike = window == turn and window % row == 0 and pitch % (2 * row) == row
        if room and row % window and not alike:
            continue
        planes = range(0, turn, unit) if whole and len(region) > 2 and row * second % window == 0 else (0,)
        for more in planes:
            yield _pitched(region, pitch, pitch * second + more)


def _compact(region: Sequence[int]) -> tuple[int, ...]:
    """Elements between neighbours along each dimension without any room."""
    return tuple(math.prod(region[dim + 1 :]) for dim in range(len(region)))


def _pitched(region: tuple[int, ...], row: int, plane: int) -> tuple[int, ...]:
    """Elements between neighbours along each dimension where rows and planes begin so far apart."""
    pitches = [1, row, plane][: len(region)]
    for dim in range(len(region) - 3, 0, -1):
        pitches.append(pitches[-1] * region[dim])
    return tuple(reversed(pitches))


@lru_cache(maxsize=4096)
def _starts(access: Access, lanes: _Lanes, pitches: tuple[int, ...], count: int) -> tuple[int, ...]:
    """The bytes at which the loads of the first threads of a block begin, in the order of the threads."""
    starts = [0]
    for axis, threads, step in lanes:
        here = min(threads, -(-count // len(starts)))
        if here == 1:
            continue
        if axis is None or not any(move.moved for move in access.moves[axis]):
            starts *= here
            continue
        size = access.element_bytes
        if len(access.moves[axis]) == 1 and access.moves[axis][0].every == 1:
            each = access.offset(axis, 1, pitches) * step * size
            moved = range(0, each * here, each) if each else [0] * here
        else:
            moved = [access.offset(axis, thread * step, pitches) * size for thread in range(here)]
        starts = [start + more for more in moved for start in starts]
    return tuple(starts[:count])


def passes(
    anchor: Stage, roles: CudaRoles, access: Access, gpu: GpuModel, values: Decisions, width: int
) -> float:
    """Passes of the first warp of a block for one load of `width` elements of an operand.

    From shared memory, each pass serves one word of every bank to all threads that want it. From memory, each
    line takes a pass through the first-level cache.

    Args:
        anchor: the stage.
        roles: of its axes.
        access: the operand.
        gpu: the GPU.
        values: legal decisions.
        width: elements that a thread loads at once.
    """
    if not values["stage"]:
        starts = _starts(access, _lanes(roles, values), _compact(access.shape), gpu.warp)
        line = gpu.level("shared").line_bytes
        return float(len({start // line for start in starts}))
    pitches = layout(anchor, roles, access, values)
    assert pitches is not None, "the decisions are legal"
    starts = _starts(access, _lanes(roles, values), pitches, gpu.warp)
    size = width * access.element_bytes
    words = {(start + more) // WORD for start in starts for more in range(0, size, WORD)}
    return float(bank_passes(words, gpu.shared_banks))


def shared_bytes(anchor: Stage, roles: CudaRoles, values: Decisions) -> int:
    """Shared memory of one block; at most this, since TVM's bounds of tiles that are not full are wide.

    Args:
        anchor: the stage.
        roles: of its axes.
        values: decisions for which every operand has a layout.
    """
    if not values["stage"]:
        return 0
    tile = staged_tile(anchor, roles, values)
    block = block_of(values)
    for axis, extent in ((roles.row, block.rows), (roles.second, block.seconds)):
        if axis is not None:
            tile[axis] = extent
    total = 0
    for access in anchor.reads:
        pitches = layout(anchor, roles, access, values)
        assert pitches is not None, "the operand has a layout"
        region = access.region(tile)
        wide = list(_compact(region))
        for dim in range(len(region) - 2, -1, -1):
            wide[dim] = wide[dim + 1] * region[dim + 1]
            if dim >= len(region) - 3:
                # Room up to where the layout's rows and planes begin.
                wide[dim] += (pitches[dim] - wide[dim]) % turn_of(access)
        total += -(-wide[0] * region[0] * access.element_bytes // _ALIGNED) * _ALIGNED
    return total
