"""Bytes that a register-blocked program moves between the levels of memory, and their seconds."""

from __future__ import annotations

from typing import NamedTuple

from host.schedules.api import Decisions
from host.schedules.constants import EstimateConstant
from host.schedules.cpu.tiled.roles import (
    Counts,
    Roles,
    counts_of,
    outer_order,
    tiles_and_blocks,
    weights_level,
)
from host.schedules.cpu.traffic import Inner, Loop, footprints, inner_of, traffic_bytes
from host.schedules.workload import Access, Stage
from targets import HardwareModel

_LINE_ELEMENTS = 16
_LINE_BYTES = 64
# Bytes beside a short run that are fetched with it in vain, from another cache and from memory. Pooling of
# 112x112x64 in runs of 64, 128 and 256 bytes: 66, 70 and 54 us; of eight such images 2.4, 1.5 and 0.9 ms.
_FETCHED_IN_VAIN = EstimateConstant("tiled.fetched_in_vain", 32.0)
_FETCHED_IN_VAIN_FROM_MEMORY = EstimateConstant("tiled.fetched_in_vain_from_memory", 128.0)
# Elements that a vector is made of lie this far apart from one step of a long sum to the next: no prefetcher
# follows, and each run costs as much as these bytes more. Products of a vector with 32 matrices of 128 x 1024
# in runs of 64, 128, 256 and 512 bytes: 735, 743, 465 and 272 us; with 8 of 64 x 512 (in the cache): 29, 20,
# 12 and 10.
_FAR_BYTES, _FAR_STEPS = 2048, 16
_LOST_BY_JUMPING = EstimateConstant("tiled.lost_by_jumping", 128.0)

TRANSFER_CONSTANTS = (_FETCHED_IN_VAIN, _FETCHED_IN_VAIN_FROM_MEMORY, _LOST_BY_JUMPING)


def memory_seconds(
    anchor: Stage, roles: Roles, hardware: HardwareModel, values: Decisions
) -> tuple[float, ...]:
    """Seconds of transfer into each level from the next one.

    Computed once for the programs that differ in other decisions alone.
    """
    key = tiles_and_blocks(values)
    held = weights_level(anchor, roles, hardware)
    known = anchor.known("tiled.memory", roles, hardware.levels, hardware.learned, held)
    found: tuple[float, ...] | None = known.get(key)
    if found is None:
        found = known[key] = _transfer_seconds(anchor, roles, hardware, values)
    return found


class _Nest(NamedTuple):
    """What the nests of all programs of a stage have in common.

    Attributes:
        accesses: the buffers read, and the one written.
        outer: loops outside of the blocks.
        reduction: loops of the sum.
        jump: whether each buffer's rows are far apart, and each step of the sum reads another one.
    """

    accesses: tuple[Access, ...]
    outer: tuple[Loop, ...]
    reduction: tuple[Loop, ...]
    jump: tuple[bool, ...]


def _nest_of(anchor: Stage, roles: Roles) -> _Nest:
    known = anchor.known("tiled.nest", roles)
    found: _Nest | None = known.get("")
    if found is None:
        accesses = (*anchor.reads, anchor.write)
        reduction: list[Loop] = []
        for axis in roles.reduction:
            # Split by the elements of a line, so that a line is not counted again for each of its elements.
            extent = anchor.axes[axis].extent
            reduction += [Loop(axis, -(-extent // _LINE_ELEMENTS)), Loop(axis, min(extent, _LINE_ELEMENTS))]
        found = known[""] = _Nest(
            accesses,
            tuple(Loop(axis, anchor.axes[axis].extent) for axis in roles.outer if axis != roles.second),
            tuple(reduction),
            tuple(_jumps(access, anchor, roles) for access in accesses),
        )
    return found


def _register_tile(anchor: Stage, roles: Roles, values: Decisions) -> Inner:
    """The loops of the sum around a register tile, and those of the tile."""
    rows, rows2, vectors = values["rows"], values["rows2"], values["vectors"]
    known = anchor.known("tiled.register_tile", roles)
    found: Inner | None = known.get((rows, rows2, vectors))
    if found is None:
        accesses, _, reduction, _ = _nest_of(anchor, roles)
        nest = [*reduction]
        if roles.second is not None:
            nest.append(Loop(roles.second, rows2))
        rows_axis = roles.rows[0] if roles.rows else roles.vector
        nest += [Loop(rows_axis, rows), Loop(roles.vector, vectors * roles.lanes)]
        useful = tuple([loop for loop in nest if loop.trips > 1])
        found = known[rows, rows2, vectors] = inner_of(accesses, useful)
    return found


def _transfer_seconds(
    anchor: Stage, roles: Roles, hardware: HardwareModel, values: Decisions
) -> tuple[float, ...]:
    """As `memory_seconds`, which follow from the loops around a tile."""
    rows_axis = roles.rows[0] if roles.rows else roles.vector
    counts = counts_of(roles, values)
    accesses, outer, _, jumping = _nest_of(anchor, roles)
    trips = {
        "second": Loop(roles.second if roles.second is not None else rows_axis, counts.second_blocks),
        "rows": Loop(rows_axis, counts.tile_blocks),
        "vectors": Loop(roles.vector, counts.panel_blocks),
    }
    order = outer_order(roles, counts)
    nest = [*outer, *[trips[name] for name in order]]
    if roles.second is not None:
        nest.append(Loop(roles.second, values["block2"]))
    nest += [Loop(rows_axis, values["block"]), Loop(roles.vector, values["panel"])]
    inner = _register_tile(anchor, roles, values)
    blocks = tuple([loop for loop in nest if loop.trips > 1])
    sizes = footprints(accesses, blocks, inner)
    useful = (*blocks, *inner.nest)
    once = sum(sizes[0])
    runs = _runs(accesses, roles, counts, values, order)
    lanes = values["vectors"] * roles.lanes
    held = weights_level(anchor, roles, hardware)
    jumps = [
        1.0 + _LOST_BY_JUMPING.on(hardware) / (lanes * access.element_bytes) if far else 1.0
        for access, far in zip(accesses, jumping, strict=True)
    ]
    found = []
    for number, (level, source) in enumerate(zip(hardware.levels, hardware.levels[1:], strict=False)):
        # The first level is filled from the second, which is near enough for any order.
        in_vain = _FETCHED_IN_VAIN if source.size_bytes else _FETCHED_IN_VAIN_FROM_MEMORY
        beside = in_vain.on(hardware) if number else 0.0
        factors = tuple([(1.0 + beside / run) * jump for run, jump in zip(runs, jumps, strict=True)])
        moved = traffic_bytes(accesses, useful, sizes, 0.75 * level.size_bytes, factors)
        if not source.size_bytes or number + 1 > held:
            # What has to come from memory once comes whatever the program; only more than that counts. From
            # beyond the cache that holds the weights nothing has to come.
            moved -= once
        found.append(moved / source.bandwidth_bytes_per_s)
    return tuple(found)


def _jumps(access: Access, anchor: Stage, roles: Roles) -> bool:
    """Whether the rows of a buffer are far apart, and each step of the sum reads another one."""
    if not roles.reduction or not access.is_linear(roles.vector):
        return False
    axis = roles.reduction[-1]
    far = abs(access.strides[axis]) * access.element_bytes >= _FAR_BYTES
    return far and anchor.axes[axis].extent >= _FAR_STEPS


def _runs(
    accesses: tuple[Access, ...],
    roles: Roles,
    counts: Counts,
    values: Decisions,
    order: tuple[str, ...],
) -> tuple[float, ...]:
    """Bytes of each buffer that are read in one piece: short where panels are outside of the rows.

    Between two pieces lies what belongs to the other panels; prefetching brings some of it in vain.
    """
    apart = order.index("vectors") < max(order.index("rows"), order.index("second"))
    if not apart or counts.panel_blocks == 1:
        return (float("inf"),) * len(accesses)
    run = values["panel"] * values["vectors"] * roles.lanes
    image = (*roles.rows, *roles.outer)
    return tuple(
        # Footprints count whole lines already.
        max(float(_LINE_BYTES), float(access.offset(roles.vector, run) * access.element_bytes))
        # Of packed weights, those of the next panel follow: nothing lies between.
        if access.is_linear(roles.vector)
        or (access.uses(roles.vector) and any(access.uses(axis) for axis in image))
        else float("inf")
        for access in accesses
    )
