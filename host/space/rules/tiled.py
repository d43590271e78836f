"""Register-blocked reductions: convolutions, matrix products, depthwise convolutions and pooling.

Accumulators of `rows` x `vectors` registers stay in registers over the whole reduction; the stages after it
are computed on them before they are stored. Around this kernel, `panel` groups of vectors share the rows
that are in cache, and `block` x `block2` row tiles share the weights that are in cache.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from host.space.design import Decision, Decisions, Sampler
from host.space.rules.common import (
    PEEL,
    contiguous,
    epilogue_names,
    fuse_parallel,
    inline_chain,
    prologue_names,
    step_sizes,
    vector_lanes,
)
from host.space.workload import Stage, Workload
from targets import HardwareModel

# How a padded input is read: from a padded copy, or from the input itself, with the borders peeled off.
PAD_COPY, PAD_PEEL = 0, 1


@dataclass(frozen=True)
class Roles:
    """What each axis of the anchor does.

    Attributes:
        vector: axis along which vectors run.
        lanes: elements of one vector.
        rows: the row axis, with axes of one iteration inside it.
        second: the next spatial axis outwards with more than one iteration, or None.
        outer: remaining spatial axes, outermost first (`second` among them).
        reduction: reduction axes in order.
    """

    vector: int
    lanes: int
    rows: tuple[int, ...]
    second: int | None
    outer: tuple[int, ...]
    reduction: tuple[int, ...]


def roles_of(stage: Stage, hardware: HardwareModel) -> Roles | None:
    """Roles of the axes of a stage, or None if it has no axis to vectorise."""
    spatial = stage.spatial
    if not spatial or not stage.reduction:
        return None
    vector = spatial[-1]
    if stage.write.strides[vector] != 1 and stage.axes[vector].extent > 1:
        return None
    if not all(contiguous(access, vector) for access in stage.reads):
        return None
    lanes = vector_lanes(stage, vector, hardware)
    rest = list(spatial[:-1])
    rows: list[int] = []
    while rest and all(stage.axes[axis].extent == 1 for axis in rows):
        rows.insert(0, rest.pop())
    second = next((axis for axis in reversed(rest) if stage.axes[axis].extent > 1), None)
    return Roles(vector, lanes, tuple(rows), second, tuple(rest), stage.reduction)


def row_extent(stage: Stage, roles: Roles) -> int:
    """Iterations of the fused row axis."""
    total = 1
    for axis in roles.rows:
        total *= stage.axes[axis].extent
    return total


class Tiled:
    """The rule of this file."""

    name = "tiled"

    def matches(self, workload: Workload, hardware: HardwareModel) -> bool:
        """A reduction with a contiguous axis of at least four lanes, plain stages around it."""
        anchor = workload.anchor_stage
        if anchor.kind not in ("contraction", "reduction"):
            return False
        others = [s for i, s in enumerate(workload.stages) if i != workload.anchor]
        if any(s.kind not in ("injective", "padding") for s in others):
            return False
        roles = roles_of(anchor, hardware)
        return roles is not None and roles.lanes >= min(4, hardware.lanes)

    def decisions(self, workload: Workload, hardware: HardwareModel, threads: int) -> tuple[Decision, ...]:
        """Register tile, cache blocks, unrolling and the reading of padding."""
        anchor = workload.anchor_stage
        roles = roles_of(anchor, hardware)
        assert roles is not None
        groups = -(-anchor.axes[roles.vector].extent // roles.lanes)
        rows = row_extent(anchor, roles)
        second = anchor.axes[roles.second].extent if roles.second is not None else 1
        window = 1
        for axis in roles.reduction[:-1]:
            window *= anchor.axes[axis].extent
        depth = anchor.axes[roles.reduction[-1]].extent
        padded = any(stage.kind == "padding" for stage in workload.stages[: workload.anchor])
        found = [
            Decision("vectors", step_sizes(groups, 8, 1)),
            Decision("rows", step_sizes(rows, 16, 4)),
            Decision("rows2", tuple(s for s in (1, 2, 4) if s <= second and second % s == 0)),
            Decision("panel", _doublings(groups)),
            Decision("block", _doublings(rows)),
            Decision("block2", _doublings(second)),
            Decision("unroll", tuple(s for s in (1, 2, 4, 8) if depth % s == 0)),
            Decision("window", (0, 1) if 1 < window * (depth if depth <= 16 else 1) <= 64 else (0,)),
            Decision("pad", (PAD_COPY, PAD_PEEL) if padded else (PAD_COPY,)),
        ]
        return tuple(found)

    def legal(self, workload: Workload, hardware: HardwareModel, values: Decisions) -> bool:
        """Accumulators and operands fit the registers; unrolled code stays within reason."""
        anchor = workload.anchor_stage
        roles = roles_of(anchor, hardware)
        assert roles is not None
        per_vector = max(1, roles.lanes // hardware.lanes)
        accumulators = values["vectors"] * values["rows"] * values["rows2"] * per_vector
        operands = min(values["vectors"], 4) * per_vector + 1
        if values["window"] and any(access.strides[roles.vector] for access in anchor.reads[:1]):
            # Both operands are vectors (depthwise, pooling): LLVM keeps the whole window in registers.
            operands += self._window(anchor, roles) * per_vector
        if accumulators + operands > hardware.vector_registers:
            return False
        groups = -(-anchor.axes[roles.vector].extent // roles.lanes)
        if values["panel"] > max(1, groups // values["vectors"]) and values["panel"] > 1:
            return False
        if values["block"] > max(1, row_extent(anchor, roles) // values["rows"]) and values["block"] > 1:
            return False
        second = anchor.axes[roles.second].extent if roles.second is not None else 1
        if values["block2"] > max(1, second // values["rows2"]) and values["block2"] > 1:
            return False
        if anchor.axes[roles.vector].extent % roles.lanes and self._code_size(anchor, roles, values) > 32:
            return False  # the scalar remainder repeats the kernel once per lane
        if values["pad"] == PAD_COPY:
            return self._code_size(anchor, roles, values) <= 512
        # Peeling makes three copies of the kernel per loop that is peeled, so only two loops may be.
        rows = row_extent(anchor, roles)
        whole = values["block"] in (1, rows // values["rows"]) and values["block2"] in (1, second // values["rows2"])
        return whole and rows % values["rows"] == 0 and self._code_size(anchor, roles, values) <= 72

    @staticmethod
    def _window(anchor: Stage, roles: Roles) -> int:
        """Steps of the reduction axes that `window` unrolls."""
        extents = [anchor.axes[axis].extent for axis in roles.reduction]
        return math.prod(extents if extents[-1] <= 16 else extents[:-1])

    @staticmethod
    def _code_size(anchor: Stage, roles: Roles, values: Decisions) -> int:
        """Vector operations of the innermost unrolled code; LLVM unrolls short windows by itself."""
        unrolled = values["unroll"]
        total = math.prod(anchor.axes[axis].extent for axis in roles.reduction)
        if values["window"] or total <= 32:
            unrolled *= Tiled._window(anchor, roles)
        return values["vectors"] * values["rows"] * values["rows2"] * unrolled

    def apply(self, sampler: Sampler, workload: Workload, hardware: HardwareModel, threads: int) -> None:
        """Tiles the anchor, moves the stages after it into the tile and vectorises."""
        schedule = sampler.schedule
        anchor = workload.anchor_stage
        roles = roles_of(anchor, hardware)
        assert roles is not None
        block = schedule.get_sblock(anchor.name)
        tails = inline_chain(schedule, epilogue_names(workload))
        if not tails:
            copy = schedule.cache_write(block, 0, "local")
            tails = [schedule.get(copy).name_hint]
        else:
            schedule.set_scope(block, 0, "local")
        pads = self._prologue(schedule, workload, sampler)
        loops = schedule.get_loops(block)
        tile = _Tile(schedule, sampler, anchor, roles, loops)
        for name in tails:
            schedule.reverse_compute_at(schedule.get_sblock(name), tile.attach)
            _vectorise_tail(schedule, schedule.get_sblock(name), len(roles.rows) + 2, roles.lanes)
        tile.finish(block, peel=bool(pads) and sampler.value("pad") == PAD_PEEL)
        if sampler.value("pad") == PAD_PEEL:
            for name in pads:
                schedule.compute_inline(schedule.get_sblock(name))
        else:
            for name in pads:
                _schedule_copy(schedule, name, hardware.lanes, threads)
        fuse_parallel(schedule, tile.outer_loops, tile.outer_extents, threads)

    @staticmethod
    def _prologue(schedule: object, workload: Workload, sampler: Sampler) -> list[str]:
        """Inlines cheap producers; returns the padding stages that are left to decide on."""
        pads = []
        for name in prologue_names(workload):
            stage = next(s for s in workload.stages if s.name == name)
            if stage.kind == "padding":
                pads.append(name)
            else:
                sampler.schedule.compute_inline(sampler.schedule.get_sblock(name))
        return pads


class _Tile:
    """The loop nest around the register tile."""

    def __init__(self, schedule: object, sampler: Sampler, anchor: Stage, roles: Roles, loops: list[object]) -> None:
        s = sampler.schedule
        values = sampler.value
        lanes = roles.lanes
        outer = [loops[i] for i in roles.outer if i != roles.second]
        outer_extents = [anchor.axes[i].extent for i in roles.outer if i != roles.second]
        row = s.fuse(*[loops[i] for i in roles.rows]) if len(roles.rows) > 1 else None
        if row is None:
            row = loops[roles.rows[0]] if roles.rows else s.add_unit_loop(loops[roles.vector])
        row_total = row_extent(anchor, roles)
        groups = -(-anchor.axes[roles.vector].extent // lanes)
        panels = -(-groups // values("vectors"))
        tiles = -(-row_total // values("rows"))
        v_outer, v_panel, v_reg, v_lane = s.split(
            loops[roles.vector], [None, sampler.sample("panel"), sampler.sample("vectors"), lanes]
        )
        r_outer, r_block, r_reg = s.split(row, [None, sampler.sample("block"), sampler.sample("rows")])
        inner_rows = [r_reg]
        second, blocks = [], [r_block]
        if roles.second is not None:
            s_outer, s_block, s_reg = s.split(
                loops[roles.second], [None, sampler.sample("block2"), sampler.sample("rows2")]
            )
            inner_rows.insert(0, s_reg)
            second, blocks = [s_outer], [s_block, r_block]
        reduction = [loops[i] for i in roles.reduction]
        depth_outer, depth_inner = s.split(reduction[-1], [None, sampler.sample("unroll")])
        reduction = [*reduction[:-1], depth_outer]
        s.reorder(
            *outer, *second, r_outer, v_outer, *blocks, v_panel, *reduction, depth_inner, *inner_rows, v_reg, v_lane
        )
        for loop in (*inner_rows, v_reg):
            s.unroll(loop)
        if values("unroll") > 1:
            s.unroll(depth_inner)
        if values("window"):
            for position, loop in zip(roles.reduction, reduction, strict=True):
                if position != roles.reduction[-1] or anchor.axes[position].extent <= 16:
                    s.unroll(loop)
        s.vectorize(v_lane)
        self.schedule = s
        self.attach = v_panel
        self.first_reduction = reduction[0]
        self.rows_peeled = [r_outer, r_block]
        self.peeled = [r_outer, *blocks, *second]
        self.ragged = bool(row_total % (values("rows") * values("block")))
        self.vectors_peeled = [v_outer, v_panel] if anchor.axes[roles.vector].extent % lanes else []
        second_tiles = []
        if roles.second is not None:
            second_tiles = [-(-anchor.axes[roles.second].extent // (values("rows2") * values("block2")))]
        self.outer_loops = [*outer, *second, r_outer, v_outer]
        self.outer_extents = [
            *outer_extents, *second_tiles, -(-tiles // values("block")), -(-panels // values("panel")),
        ]

    def finish(self, block: object, peel: bool) -> None:
        """Separates initialisation from the update and marks the loops whose borders are peeled."""
        for loop in self.peeled if peel else self.rows_peeled if self.ragged else ():
            self.schedule.annotate(loop, PEEL, 1)
        for loop in self.vectors_peeled:
            self.schedule.annotate(loop, PEEL, 1)
        self.schedule.decompose_reduction(block, self.first_reduction)


def _doublings(count: int) -> tuple[int, ...]:
    sizes, size = [], 1
    while size < count and size <= 64:
        sizes.append(size)
        size *= 2
    return (*sizes, count) if count > 1 else (1,)


def _vectorise_tail(schedule: object, block: object, depth: int, lanes: int) -> None:
    """Unrolls the tile's rows of a stage after the reduction and vectorises its innermost loop."""
    s = schedule
    loops = s.get_loops(block)[-depth:]  # type: ignore[attr-defined]
    extents = [int(s.get(loop).extent) for loop in loops]  # type: ignore[attr-defined]
    outer, inner = s.split(loops[-1], [None, lanes])  # type: ignore[attr-defined]
    s.vectorize(inner)  # type: ignore[attr-defined]
    budget = 64
    for loop, extent in zip([*loops[:-1], outer][::-1], [*extents[:-1], -(-extents[-1] // lanes)][::-1], strict=True):
        budget //= max(1, extent)
        if budget < 1:
            break
        if s.get(loop).kind == 0:  # type: ignore[attr-defined]
            s.unroll(loop)  # type: ignore[attr-defined]


def _schedule_copy(schedule: object, name: str, lanes: int, threads: int) -> None:
    """A padded copy: rows in parallel, channels in vectors."""
    s = schedule
    block = s.get_sblock(name)  # type: ignore[attr-defined]
    loops = s.get_loops(block)  # type: ignore[attr-defined]
    extents = [int(s.get(loop).extent) for loop in loops]  # type: ignore[attr-defined]
    width = lanes
    while width > 1 and extents[-1] % width:
        width //= 2
    if width > 1:
        _, inner = s.split(loops[-1], [None, width])  # type: ignore[attr-defined]
        s.vectorize(inner)  # type: ignore[attr-defined]
    fuse_parallel(s, loops[:-1], extents[:-1], threads)  # type: ignore[arg-type]
