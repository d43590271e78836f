"""How the tiles of a register-blocked program read an input with borders: the copies, and what they cost."""

from __future__ import annotations

from collections.abc import Mapping

from host.lowering.types import numeric_type
from host.schedules.api import Decisions
from host.schedules.constants import EstimateConstant
from host.schedules.cpu.tiled.roles import (
    PAD_BLOCK,
    PAD_COPY,
    PAD_PEEL,
    Roles,
    counts_of,
    outer_iterations,
    tiles_and_blocks,
)
from host.schedules.cpu.traffic import copy_seconds, footprint_bytes
from host.schedules.workload import Access, Stage, Workload
from targets import HardwareModel

# What the border of a padded input costs where it is code of its own, as a share of the arithmetic.
_PEELED = EstimateConstant("tiled.peeled", 0.04)
# Cycles in which a vector of a block's copy is read, and written or filled up.
_COPY_CYCLES = EstimateConstant("tiled.block_copy", 3.0)

# Taps of a window that is little code to peel: copies gain nothing there, and a walk that has found one does
# not come to the peeled programs any more (3x3 with stride 2 on a Cortex-A72: 10% by the estimate).
_PEELED_TAPS = 9

PADDING_CONSTANTS = (_PEELED, _COPY_CYCLES)


def pad_choices(workload: Workload, roles: Roles) -> tuple[int, ...]:
    """The ways in which a program may read its padded input; one where it has none."""
    padding = [stage for stage in workload.stages[: workload.anchor] if stage.kind == "padding"]
    # What is expensive is computed once for each element, and not for each tap that reads it.
    if not padding or any(stage.expensive for stage in padding):
        return (PAD_COPY,)
    if roles.depth <= _PEELED_TAPS or roles.ragged_vectors or not block_copies(workload, roles, PAD_BLOCK):
        return (PAD_COPY, PAD_PEEL)
    return (PAD_COPY, PAD_PEEL, PAD_BLOCK)


def block_copies(workload: Workload, roles: Roles, pad: int) -> list[tuple[Stage, Access]]:
    """Padded inputs that each block copies for itself with `PAD_BLOCK`, and how the anchor reads them.

    Those whose channels the vectors run along, as in depthwise convolutions and pooling: blocks of other
    channels then read nothing of what one has copied.
    """
    if pad != PAD_BLOCK:
        return []
    padded = {
        stage.write.buffer: stage for stage in workload.stages[: workload.anchor] if stage.kind == "padding"
    }
    reads = [access for access in workload.anchor_stage.reads if access.is_linear(roles.vector)]
    return [(padded[access.buffer], access) for access in reads if access.buffer in padded]


def copied_stages(workload: Workload, roles: Roles, pad: int) -> list[Stage]:
    """The stages before the anchor that are made as a whole before the nest starts, in order.

    Padded inputs with `PAD_COPY`, and halves that no axis of vectors runs along: in the nest each of them
    would be loaded, widened and spread to a vector by operations of its own, again for every panel.

    Args:
        workload: whose anchor the roles are of.
        roles: of the axes of the anchor.
        pad: value of that decision.
    """
    before = workload.stages[: workload.anchor]
    found = [stage for stage in before if stage.kind == "padding" and pad == PAD_COPY]
    writers = {stage.write.buffer: stage for stage in before}
    for access in workload.anchor_stage.reads:
        stage = None if access.uses(roles.vector) else writers.get(access.buffer)
        while stage is not None and stage.kind == "padding" and stage not in found:
            stage = writers.get(stage.reads[0].buffer)
        if stage is not None and stage not in found and _widens_halves(stage):
            found.append(stage)
    return found


def _widens_halves(stage: Stage) -> bool:
    if stage.kind != "injective" or len(stage.reads) != 1:
        return False
    return stage.reads[0].type.name in numeric_type(stage.write.type.name).halves


def padding_seconds(
    workload: Workload, roles: Roles, hardware: HardwareModel, values: Decisions, compute_s: float
) -> float:
    """What it costs to copy in advance or block by block, or to read borders by code of their own."""
    if not workload.anchor:
        return 0.0
    pad, total = values["pad"], 0.0
    if pad == PAD_PEEL and any(stage.kind == "padding" for stage in workload.stages[: workload.anchor]):
        total = _PEELED.on(hardware) * compute_s
    known = workload.anchor_stage.known("tiled.padding", workload, roles, hardware)
    tile = (values["vectors"], values["rows"], values["rows2"])
    key = (pad, tiles_and_blocks(values) if pad == PAD_BLOCK else tile)
    found: tuple[float, ...] | None = known.get(key)
    if found is None:
        found = known[key] = _copying_seconds(workload, roles, hardware, values)
    for seconds in found:
        total += seconds
    return total


def _copying_seconds(
    workload: Workload, roles: Roles, hardware: HardwareModel, values: Decisions
) -> tuple[float, ...]:
    """Seconds of copies in advance, of those of blocks for each input, and of what is computed again."""
    copies = [stage.write for stage in copied_stages(workload, roles, values["pad"])]
    return (
        sum(copy_seconds(one.elements * one.element_bytes, hardware) for one in copies),
        *(
            _block_copy_seconds(workload.anchor_stage, access, roles, hardware, values)
            for _, access in block_copies(workload, roles, values["pad"])
        ),
        recomputed_seconds(workload, roles, hardware, values),
    )


def recomputed_seconds(workload: Workload, roles: Roles, hardware: HardwareModel, values: Decisions) -> float:
    """Seconds in which elements that are computed before they are multiplied are computed again.

    What is not copied is computed where it is read, for each product. It takes units of the multiply-adds,
    and one operation more where the element is spread to a vector: an element of memory is spread as it is
    loaded. Convolutions 3x3 of the sum of two images, of 14x14x56, 28x28x28 and 56x56x14: 191, 135 and
    195 us where those of one image take 75, 75 and 70, which is 0.85 to 0.89 cycles more for each sum that
    is read, on a Xeon with two units.
    """
    anchor = workload.anchor_stage
    copied = [stage.write.buffer for stage in copied_stages(workload, roles, values["pad"])]
    copied += [access.buffer for _, access in block_copies(workload, roles, values["pad"])]
    made = {
        stage.write.buffer: stage
        for stage in workload.stages[: workload.anchor]
        if stage.write.buffer not in copied
    }
    cycles = 0.0
    for access in anchor.reads:
        operations, loads = _on_the_way(access, made)
        if operations:
            spread = not access.uses(roles.vector)
            each = max((operations + spread) / hardware.fma_per_cycle, (loads - 1) / hardware.loads_per_cycle)
            cycles += each * _evaluations(anchor, access, roles, values)
    return cycles / hardware.frequency_hz


def _on_the_way(access: Access, made: Mapping[str, Stage]) -> tuple[float, int]:
    """Operations that compute one element of a buffer, and how many stored elements they read."""
    stage = made.get(access.buffer)
    if stage is None:
        return 0.0, 1
    sources = [_on_the_way(one, made) for one in stage.reads]
    operations = stage.flops_per_point + sum(one for one, _ in sources)
    return operations, sum(loads for _, loads in sources)


def _evaluations(anchor: Stage, access: Access, roles: Roles, values: Decisions) -> int:
    """How often elements of a buffer, or vectors of them, are read: once in a step for all of a tile."""
    steps = roles.depth * outer_iterations(anchor, roles)
    steps *= roles.groups if access.uses(roles.vector) else -(-roles.groups // values["vectors"])
    for axis, total, tile in (
        (roles.rows[0] if roles.rows else None, roles.row_total, values["rows"]),
        (roles.second, roles.second_total, values["rows2"]),
    ):
        steps *= total if axis is not None and access.strides[axis] else -(-total // tile)
    return steps


def copies_stay_near(workload: Workload, roles: Roles, hardware: HardwareModel, values: Decisions) -> bool:
    """Whether the copies of a block stay in the first cache level, beside what is copied and the results.

    Farther away they gain nothing over peeled borders. Depthwise 5x5 of 7x7x1152 with copies of 8, 31 and
    93 KB: 20, 25 and 36 us; 3x3 of 112x112x32 with 7 and 30 KB: 119 and 172 us, and 104 with peeled borders.
    """
    first = 0.75 * hardware.levels[0].size_bytes
    copies = block_copies(workload, roles, values["pad"])
    return all(3.0 * _copy_bytes(workload.anchor_stage, one, roles, values) <= first for _, one in copies)


def _copy_bytes(anchor: Stage, access: Access, roles: Roles, values: Decisions) -> float:
    """Bytes of what one block reads of an input."""
    tile = {axis: anchor.axes[axis].extent for axis in roles.reduction}
    tile[roles.vector] = values["panel"] * values["vectors"] * roles.lanes
    if roles.rows:
        tile[roles.rows[0]] = values["block"] * values["rows"]
    if roles.second is not None:
        tile[roles.second] = values["block2"] * values["rows2"]
    return footprint_bytes(access, tile)


def _block_copy_seconds(
    anchor: Stage, access: Access, roles: Roles, hardware: HardwareModel, values: Decisions
) -> float:
    """Seconds of all copies of one input: those of neighbouring blocks have the halo in common.

    What a copy reads first is traffic of the nest, which counts the padded elements in its place.
    """
    size = _copy_bytes(anchor, access, roles, values)
    counts = counts_of(roles, values)
    blocks = counts.panel_blocks * counts.tile_blocks * counts.second_blocks * outer_iterations(anchor, roles)
    cycles = _COPY_CYCLES.on(hardware) * size / (roles.lanes * access.element_bytes)
    return blocks * cycles / hardware.frequency_hz
