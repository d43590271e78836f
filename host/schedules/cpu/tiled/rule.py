"""Register-blocked reductions: convolutions, matrix products, depthwise convolutions and pooling.

Accumulators of `rows` x `rows2` x `vectors` registers stay in registers over the whole reduction; the stages
after it are computed on them before they are stored. Around this kernel, `panel` groups of vectors share
the rows that are in cache, and `block` x `block2` row tiles share the weights that are in cache.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tvm import s_tir

from host.schedules.api import CPU, DecisionKind, Decisions, Level, Rule, Sampler, WordClass
from host.schedules.cpu.common import (
    TILE_VECTORS,
    UNROLLED_STEPS,
    epilogue_names,
    inline_chain,
    moves_result,
    on_elements,
    prologue_names,
    schedule_copy,
    step_sizes,
)
from host.schedules.cpu.tiled.cost import CONSTANTS, tiled_parts, tiled_seconds
from host.schedules.cpu.tiled.lengths import TiledLengths
from host.schedules.cpu.tiled.nest import Nest
from host.schedules.cpu.tiled.padding import block_copies, copied_stages, copies_stay_near, pad_choices
from host.schedules.cpu.tiled.roles import (
    PAD_BLOCK,
    PAD_PEEL,
    Counts,
    Roles,
    blocks_divide,
    cold_weights,
    counts_of,
    registers,
    roles_of,
    unrolled_window,
)
from host.schedules.workload import Stage, Workload
from targets import HardwareModel

# Bounds on vector operations in unrolled code. A remainder of a vector repeats the kernel once per lane;
# peeling the borders makes three copies of it per peeled loop.
_LARGEST_CODE, _LARGEST_PEELED, _LARGEST_RAGGED = 512, 72, 32


# Rows of a tile that fit two vectors of accumulators into sixteen registers and keep the units busy.
_ROWS = range(4, 7)


class Tiled(Rule):
    """A tile of accumulators in registers, blocks of tiles around it that share what is in cache."""

    name = "tiled"
    processor = CPU
    # 5: panels of much code are a loop, and weights are fetched ahead outside of the innermost loop.
    version = 5
    priority = 30
    constants = CONSTANTS
    length_tiling = TiledLengths
    decisions = (
        TILE_VECTORS,
        DecisionKind("rows", Level.REGISTER, WordClass.TILE),
        DecisionKind("rows2", Level.REGISTER, WordClass.TILE, interleaves=True),
        DecisionKind("panel", Level.BLOCK, WordClass.TILE, starts_wide=True),
        DecisionKind("block", Level.BLOCK, WordClass.TILE),
        DecisionKind("block2", Level.BLOCK, WordClass.TILE),
        UNROLLED_STEPS,
        DecisionKind("window", Level.REGISTER, WordClass.SWITCH),
        DecisionKind("pad", Level.REGISTER, WordClass.SWITCH),
        DecisionKind("fetch", Level.BLOCK, WordClass.SWITCH),
    )

    def matches(self, workload: Workload, hardware: HardwareModel) -> bool:
        """A reduction with a contiguous axis of at least four lanes, plain stages around it."""
        anchor, hardware = workload.anchor_stage, on_elements(workload, hardware)
        if anchor.kind not in ("contraction", "reduction"):
            return False
        others = [s for i, s in enumerate(workload.stages) if i != workload.anchor]
        if any(s.kind not in ("injective", "padding") for s in others):
            return False
        # A tile makes what follows from it: elements that come from elsewhere would stay unwritten.
        made = math.prod(anchor.axes[axis].extent for axis in anchor.spatial)
        after = workload.stages[workload.anchor + 1 :]
        if any(stage.kind == "padding" or stage.points > made for stage in after):
            return False
        roles = roles_of(anchor, hardware)
        return roles is not None and roles.lanes >= min(4, hardware.lanes)

    def choices(self, workload: Workload, hardware: HardwareModel) -> Mapping[str, tuple[int, ...]]:
        """Register tile, cache blocks, unrolling, the reading of padding and of the next weights."""
        anchor, hardware = workload.anchor_stage, on_elements(workload, hardware)
        roles = _roles(anchor, hardware)
        depth = anchor.axes[roles.reduction[-1]].extent
        vectors = step_sizes(roles.groups, 8, range(1, 9))
        rows = step_sizes(roles.row_total, 16, _ROWS)
        rows2 = tuple(s for s in (1, 2, 4) if roles.second_total % s == 0)
        return {
            "vectors": vectors,
            "rows": rows,
            "rows2": rows2,
            "panel": _block_sizes(roles.groups, vectors),
            "block": _block_sizes(roles.row_total, rows),
            "block2": _block_sizes(roles.second_total, rows2),
            "unroll": tuple(s for s in (1, 2, 4, 8) if depth % s == 0),
            "window": (0, 1) if 1 < unrolled_window(anchor, roles) <= 64 else (0,),
            "pad": pad_choices(workload, roles),
            "fetch": (0, 1) if cold_weights(anchor, roles, hardware) is not None else (0,),
        }

    def legal(self, workload: Workload, hardware: HardwareModel, values: Decisions) -> bool:
        """Blocks divide, accumulators and operands fit the registers, code stays within reason."""
        anchor, hardware = workload.anchor_stage, on_elements(workload, hardware)
        roles = _roles(anchor, hardware)
        # First what most of random values fail at.
        if not blocks_divide(roles, values):
            return False
        counts = counts_of(roles, values)
        return (
            # What is fetched ahead are the weights of the next panel: there has to be one.
            (not values["fetch"] or counts.panel_blocks > 1)
            # A copy for each block has the size of a whole block.
            and not (values["pad"] == PAD_BLOCK and counts.ragged_rows)
            and registers(anchor, roles, hardware, values) <= hardware.vector_registers
            and _code_in_bounds(anchor, roles, counts, values)
            and (values["pad"] != PAD_BLOCK or copies_stay_near(workload, roles, hardware, values))
        )

    def apply(self, sampler: Sampler, workload: Workload, hardware: HardwareModel, threads: int) -> None:
        """Tiles the anchor, moves the stages after it into the tile and vectorises."""
        schedule = sampler.schedule
        anchor, hardware = workload.anchor_stage, on_elements(workload, hardware)
        roles = _roles(anchor, hardware)
        block = schedule.get_sblock(anchor.name)
        tails = inline_chain(schedule, epilogue_names(workload))
        apart = tails if moves_result(workload) else []
        if tails and not apart:
            schedule.set_scope(block, 0, "local")
        else:
            copy = schedule.cache_write(block, 0, "local")
            tails = [schedule.get(copy).name_hint]
        pad = sampler.value("pad")
        copied = [stage.name for stage in copied_stages(workload, roles, pad)]
        in_block = [stage.name for stage, _ in block_copies(workload, roles, pad)]
        left = _prologue(schedule, workload, copied)
        nest = Nest(sampler, anchor, roles, block, threads)
        inside = not _panels_in_bounds(anchor, roles, sampler.values)
        for name in tails:
            tail = schedule.get_sblock(name)
            schedule.reverse_compute_at(tail, nest.attach)
            vectorise_tail(schedule, tail, nest.attach, len(roles.rows) + 2, roles.lanes, inside)
        for name in left:
            if name in copied:
                schedule_copy(schedule, name, hardware.lanes, threads)
            elif name in in_block:
                nest.copy_in_block(name, roles.lanes)
            else:
                schedule.compute_inline(schedule.get_sblock(name))
        for name in apart:
            schedule_copy(schedule, name, hardware.lanes, threads)
        nest.parallelise(threads)
        nest.finish()
        weights = cold_weights(anchor, roles, hardware)
        if sampler.value("fetch") and weights is not None:
            nest.prefetch(weights)

    def estimate_s(
        self, workload: Workload, hardware: HardwareModel, threads: int, values: Decisions
    ) -> float:
        """Estimated seconds of one call, see `cost`."""
        return tiled_seconds(workload, on_elements(workload, hardware), threads, values)

    def estimate_parts_s(
        self, workload: Workload, hardware: HardwareModel, values: Decisions
    ) -> Mapping[str, float]:
        """Seconds of "compute", of "padding", and of transfers by memory level."""
        return tiled_parts(workload, on_elements(workload, hardware), values)


def _roles(anchor: Stage, hardware: HardwareModel) -> Roles:
    roles = roles_of(anchor, hardware)
    assert roles is not None, "the rule matched before"
    return roles


def _block_sizes(total: int, steps: tuple[int, ...]) -> tuple[int, ...]:
    """Sizes that divide the number of tiles for some tile of `steps`: up to 64, and all of them."""
    sizes: set[int] = set()
    for step in steps:
        count = -(-total // step)
        sizes |= {size for size in range(1, min(count, 64) + 1) if count % size == 0}
        sizes.add(count)
    return tuple(sorted(sizes))


def _code_in_bounds(anchor: Stage, roles: Roles, counts: Counts, values: Decisions) -> bool:
    """Whether unrolled code stays small enough to compile in about a second."""
    if _code(anchor, roles, values) > _largest_code(roles, counts.peeled):
        return False
    if not counts.peeled:
        return True
    # Only two loops may be peeled, so each block is one tile or everything.
    whole = counts.tile_blocks in (1, counts.tiles) and counts.second_blocks in (1, counts.seconds)
    return whole and not counts.ragged_rows


def _panels_in_bounds(anchor: Stage, roles: Roles, values: Decisions) -> bool:
    """Whether the panels of a block can be written out too, within the bounds of the code of one tile.

    Beyond them that is slower, too: depthwise 3x3 of 14x14x576 with six panels takes 45 us with the panels
    written out and 22 with a loop over them, of 28x28x192 33 and 26.
    """
    code = _code(anchor, roles, values) * values["panel"]
    return code <= _largest_code(roles, values["pad"] == PAD_PEEL)


def _code(anchor: Stage, roles: Roles, values: Decisions) -> int:
    """Vector operations of one register tile that are written out."""
    steps = values["unroll"]
    if values["window"] or roles.depth <= 32:
        steps *= unrolled_window(anchor, roles)  # LLVM unrolls short windows by itself
    return values["vectors"] * values["rows"] * values["rows2"] * steps


def _largest_code(roles: Roles, peeled: bool) -> int:
    largest = _LARGEST_PEELED if peeled else _LARGEST_CODE
    return min(largest, _LARGEST_RAGGED) if roles.ragged_vectors else largest


def _prologue(schedule: s_tir.Schedule, workload: Workload, copied: list[str]) -> list[str]:
    """Inlines cheap producers; returns those that are copied, and padding that is inlined last."""
    kinds = {stage.name: stage.kind for stage in workload.stages}
    names = prologue_names(workload)
    left = [name for name in names if kinds[name] == "padding" or name in copied]
    for name in names:
        if name not in left:
            schedule.compute_inline(schedule.get_sblock(name))
    return left


def vectorise_tail(
    schedule: s_tir.Schedule, block: Any, attach: Any, depth: int, lanes: int, inside: bool = False
) -> None:
    """Unrolls the tile's rows of a stage after the reduction and vectorises its innermost loop.

    Args:
        schedule: the schedule.
        block: of the stage.
        attach: the loop around one tile.
        depth: loops that may be unrolled. A tile of one row along an axis has no loop along it: the loops
            around the tile then take its place.
        lanes: elements of one vector.
        inside: whether the loops around the tile stay loops.
    """
    loops, around = schedule.get_loops(block), schedule.get(attach)
    place = next(i for i, loop in enumerate(loops) if schedule.get(loop).same_as(around))
    within = len(loops) - 1 - place
    if not within and (inside or lanes > 1):
        return  # The tile is one element, and the loops around it have the vectors of the sums inside.
    loops = loops[-(min(depth, within) if inside else depth) :]
    extents = [int(schedule.get(loop).extent) for loop in loops]
    outer, inner = schedule.split(loops[-1], [None, lanes])
    schedule.vectorize(inner)
    budget = 64
    tiles = [*extents[:-1], -(-extents[-1] // lanes)]
    for loop, extent in zip([*loops[:-1], outer][::-1], tiles[::-1], strict=True):
        budget //= max(1, extent)
        if budget < 1:
            break
        if schedule.get(loop).kind == 0:
            schedule.unroll(loop)


RULE = Tiled()
