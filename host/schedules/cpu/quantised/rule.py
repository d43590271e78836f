"""Products with quantised weights: tiles of rows and panels, summed group by group.

Activations are rounded first. A tile is `rows` rows by `vectors` panels; the products of a group are summed
in integers and then scaled, and the weight is read as one stream for each panel of a tile.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import tvm
from tvm import tirx

from host.lowering.quantised import product as parts
from host.lowering.quantised.layout import ZERO, WeightLayout
from host.schedules.api import CPU, DecisionKind, Decisions, Level, Rule, Sampler, WordClass
from host.schedules.cpu.common import TILE_ROWS, TILE_VECTORS, UNROLLED_STEPS, divisors
from host.schedules.cpu.prefetch import prefetch_in
from host.schedules.cpu.quantised.cost import CONSTANTS, quantised_seconds
from host.schedules.cpu.quantised.fetching import LINE_BYTES, fetches
from host.schedules.cpu.quantised.intrinsics import has_intrinsic, intrinsic, takes_rows
from host.schedules.workload import Stage, Workload
from targets import HardwareModel

# Groups by which weights are fetched ahead.
_AHEAD = (0, 8, 16, 32, 64)
# Registers that a tile needs beside its totals where sums of groups are scaled one after the other.
_BESIDE_TOTALS = 4
# Registers of two vectors of weights, and of the half bytes of both.
_BESIDE_WIDENED = 6
# Registers of a vector of weights, its half bytes, and activations of matrices.
_BESIDE_MATRICES = 6
_MOST_ROWS, _MOST_VECTORS, _MOST_UNROLLED = 16, 8, 4


class Quantised(Rule):
    """A tile of rows and panels."""

    name = "quantised"
    processor = CPU
    version = 5
    priority = 6
    constants = CONSTANTS
    decisions = (
        TILE_VECTORS,
        TILE_ROWS,
        UNROLLED_STEPS,
        DecisionKind("ahead", Level.REGISTER, WordClass.TILE),
    )

    def matches(self, workload: Workload, hardware: HardwareModel) -> bool:
        """The function of such a product, whose blocks have these names; no other rule takes it."""
        blocks = {parts.ROUNDED, parts.DOTS, parts.TOTALS, parts.OUTPUT}
        return blocks <= {stage.name for stage in workload.stages}

    def choices(self, workload: Workload, hardware: HardwareModel) -> Mapping[str, tuple[int, ...]]:
        """Divisors: of the rows, of the panels, and of the groups."""
        rows, panels, groups = (axis.extent for axis in workload.stage(parts.DOTS).axes[:3])
        layout = layout_of(workload, hardware)
        at_once = layout.widens or (layout.rounding == 8 and rows > 1)
        return {
            "vectors": divisors(panels, _MOST_VECTORS),
            "rows": divisors(rows, _MOST_ROWS),
            # LLVM keeps the totals of many rows in registers in a short loop only.
            "unroll": (1,) if at_once else divisors(groups, _MOST_UNROLLED),
            "ahead": _AHEAD,
        }

    def legal(self, workload: Workload, hardware: HardwareModel, values: Decisions) -> bool:
        """All sums of a tile fit the registers beside the weights of a group, or it is the least tile."""
        tile = values["rows"] * values["vectors"]
        layout = layout_of(workload, hardware)
        totals = tile * max(1, layout.lanes // hardware.lanes)
        if layout.widens:
            # Half bytes are summed in 16 bits, bytes in 32.
            totals += totals * layout.planes // (2 if layout.bits == 4 else 1)
            return tile == 1 or totals + _BESIDE_WIDENED <= hardware.vector_registers
        if layout.multiplies_matrices:
            # Those of one panel, of two rows or planes each.
            totals += layout.lanes // hardware.lanes * 2 * math.ceil(values["rows"] * layout.planes / 2)
            return tile == 1 or totals + _BESIDE_MATRICES <= hardware.vector_registers
        if layout.rounding == 8:
            return tile == 1 or totals + _BESIDE_TOTALS <= hardware.vector_registers
        return tile == 1 or (1 + layout.planes) * totals + 3 <= hardware.vector_registers

    def apply(self, sampler: Sampler, workload: Workload, hardware: HardwareModel, threads: int) -> None:
        """Rounds the activations, then tiles the product."""
        schedule = sampler.schedule
        layout = layout_of(workload, hardware)
        dots = schedule.get(schedule.get_sblock(parts.DOTS))
        made = (parts.ROUNDED, parts.SUMS, parts.DOTS)
        weight = next(one for one in dots.reads if one.source.name not in made)
        first = tvm.sym.Analyzer().simplify(weight.region[0].min - dots.iter_vars[1].var)
        apart = layout.joined or layout.planes_together
        _round(schedule, workload.stage(parts.ROUNDED), threads, apart=apart)
        row, panel, lane = schedule.get_loops(schedule.get_sblock(parts.OUTPUT))
        row, row_tile = schedule.split(row, [None, sampler.sample("rows")])
        panel, panel_tile = schedule.split(panel, [None, sampler.sample("vectors")])
        schedule.reorder(panel, row, row_tile, panel_tile, lane)
        if threads > 1:
            schedule.parallel(panel)
        _in_registers(schedule, row_tile, panel_tile, lane)
        totals = schedule.get_sblock(parts.TOTALS)
        schedule.set_scope(totals, 0, "local")
        schedule.compute_at(totals, row, preserve_unit_loops=True)
        row_tile, panel_tile, lane, group = schedule.get_loops(totals)[-4:]
        group, steps = schedule.split(group, [None, sampler.sample("unroll")])
        # Matrices have all rows of a panel, and those of the next one other registers.
        tile = (panel_tile, row_tile) if layout.multiplies_matrices else (row_tile, panel_tile)
        schedule.reorder(group, steps, *tile, lane)
        schedule.unroll(steps)
        _in_registers(schedule, row_tile, panel_tile, lane)
        # Where sums start from what the offset adds, weights are left to what the processor fetches itself:
        # so it has been in all programs that were measured.
        ahead = 0 if layout.sums_start else sampler.value("ahead")
        beside = ahead if fetches(layout, sampler.value("vectors")) else 0
        if has_intrinsic(layout) and (beside or takes_rows(layout, sampler.value("rows"))):
            loop = panel_tile if layout.multiplies_matrices else steps
            _row_products(schedule, loop, layout, sampler.value("rows"), beside)
        else:
            # A sum of one plane is scaled as soon as it is there, so that no other has to be kept beside it.
            _products(schedule, panel_tile if layout.rounding == 8 else steps, layout)
        schedule.decompose_reduction(totals, group)
        if ahead and not beside:
            _fetch(schedule, panel, group, weight.source, int(first), sampler.values)

    def estimate_s(
        self, workload: Workload, hardware: HardwareModel, threads: int, values: Decisions
    ) -> float:
        """Estimated seconds of one call, see `cost`."""
        return quantised_seconds(workload, hardware, threads, values)


def layout_of(workload: Workload, hardware: HardwareModel) -> WeightLayout:
    """The layout of the weight that the function was written for."""
    reads = {access.buffer == parts.ROUNDED: access.shape for access in workload.stage(parts.DOTS).reads}
    # Planes stand before steps, or behind them; there are never more of them.
    (planes, steps), width, vectors = sorted(reads[True][-3:-1]), reads[True][-1], reads[False][-3]
    bits, rounding = (4 if vectors < steps else 8), (8 if planes == 1 else 16)
    # Products start from the sums of groups of symmetric weights, see `WeightLayout.sums_start`.
    after = any(access.buffer == parts.SUMS for access in workload.stage(parts.TOTALS).reads)
    asymmetry = ZERO if after and hardware.dot_product == "s8s8" else ""
    return WeightLayout.of(bits, hardware, steps * width, asymmetry, rounding=rounding)


def _in_registers(schedule: Any, *loops: Any) -> None:
    """Unrolls the loops of a tile; the last one is a vector."""
    for loop in loops[:-1]:
        schedule.unroll(loop)
    schedule.vectorize(loops[-1])


def _round(schedule: Any, rounded: Stage, threads: int, *, apart: bool) -> None:
    """Rounds each row for itself: scale, numbers and their sum group by group.

    Args:
        schedule: of the function.
        rounded: the stage.
        threads: that share rows.
        apart: whether steps are written one by one: low and high halves differ, or lie apart.
    """
    row, group = schedule.get_loops(schedule.get_sblock(parts.LARGEST))[:2]
    for name in (parts.SCALES, parts.ROUNDED):
        schedule.reverse_compute_at(schedule.get_sblock(name), group, preserve_unit_loops=True)
    # Behind all groups of the row: bytes that were just stored one vector after the other are slow to load
    # across vectors.
    schedule.reverse_compute_at(schedule.get_sblock(parts.SUMS), row, preserve_unit_loops=True)
    numbers = schedule.get_sblock(parts.ROUNDED)
    *_, plane, step, place = schedule.get_loops(numbers)
    schedule.unroll(plane)
    if apart:
        schedule.unroll(step)
        schedule.vectorize(place)
    else:
        schedule.vectorize(schedule.fuse(step, place))
    if threads > 1 and rounded.axes[0].extent > 1:
        schedule.parallel(row)


def _row_products(schedule: Any, loop: Any, layout: WeightLayout, rows: int, ahead: int) -> None:
    """Sums the products of a group of all rows of a tile under the loop over groups, step by step.

    Weights are fetched so many groups ahead meanwhile.
    """
    dots = schedule.get_sblock(parts.DOTS)
    schedule.set_scope(dots, 0, "local")
    schedule.compute_at(dots, loop, preserve_unit_loops=True)
    row, panel, group, plane, step, lane, place = schedule.get_loops(dots)[-7:]
    extents = ((row, rows), (plane, layout.planes))
    inner, outer = ([one for one, extent in extents if (extent > 1) == several] for several in (True, False))
    schedule.reorder(panel, group, *outer, *inner, *_group_loops(schedule, layout, step, lane, place))
    first = schedule.decompose_reduction(dots, inner[0])
    *starts, last = schedule.get_loops(first)[-1 - len(inner) :]
    for one in (panel, group, *outer, *starts):
        schedule.unroll(one)
    schedule.vectorize(last)
    _hide_sums(schedule, dots)
    schedule.tensorize(inner[0], intrinsic(layout, rows, ahead))


def _group_loops(schedule: Any, layout: WeightLayout, step: Any, lane: Any, place: Any) -> tuple[Any, ...]:
    """The loops over the elements of a group, as an intrinsic describes them: without one of one place."""
    if layout.width > 1:
        return step, lane, place
    schedule.reorder(step, place, lane)
    return schedule.fuse(step, place), lane


def _hide_sums(schedule: Any, dots: Any) -> None:
    """What sums start from is read before: the products of a group are without it."""
    reads = [region.source.name for region in schedule.get(dots).reads]
    if parts.SUMS in reads:
        schedule.unsafe_hide_buffer_access(
            dots, "read", [n for n, name in enumerate(reads) if name == parts.SUMS]
        )


def _products(schedule: Any, loop: Any, layout: WeightLayout) -> None:
    """Sums the products of a group under the loop over groups, by the processor's instructions."""
    dots = schedule.get_sblock(parts.DOTS)
    schedule.set_scope(dots, 0, "local")
    schedule.compute_at(dots, loop, preserve_unit_loops=True)
    row, panel, group, plane, step, lane, place = schedule.get_loops(dots)[-7:]
    for one in (row, panel, group, plane):
        schedule.unroll(one)
    if not has_intrinsic(layout):
        schedule.reorder(step, place, lane)
        schedule.unroll(place)
        schedule.vectorize(lane)
        schedule.decompose_reduction(dots, step)
        return
    step, *_ = _group_loops(schedule, layout, step, lane, place)
    first = schedule.decompose_reduction(dots, step)
    schedule.vectorize(schedule.get_loops(first)[-1])
    _hide_sums(schedule, dots)
    schedule.tensorize(step, intrinsic(layout))


def _fetch(schedule: Any, panel: Any, group: Any, buffer: tirx.Buffer, first: int, values: Decisions) -> None:
    """Fetches the bytes of each panel of a tile ahead, at the end of a panel those of the next tile's.

    The first tile begins with panel `first` of the weight.
    """
    wide, unroll, ahead = values["vectors"], values["unroll"], values["ahead"]
    groups, size = int(buffer.shape[1]), math.prod(int(extent) for extent in buffer.shape[2:])
    tile, step = (schedule.get(loop).loop_var for loop in (panel, group))
    for number in range(wide):
        for offset in range(unroll):
            later = step * unroll + (offset + ahead)
            over = tirx.Cast("int32", later >= groups)

            def element(line: Any, number: int = number, later: Any = later, over: Any = over) -> Any:
                place = ((tile + over) * wide + number + first) * groups + later - over * groups
                return place * size + line * LINE_BYTES

            prefetch_in(schedule, group, buffer, 0, size // LINE_BYTES, 1, element)


RULE = Quantised()
