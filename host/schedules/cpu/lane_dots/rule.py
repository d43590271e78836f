"""Depthwise convolutions of bytes: each lane adds up the products of its own channel.

For each band of output rows and each panel of channels, the rows of the image that the band reads are
interleaved, four in each number of 32 bits. Tiles of the band's sums then stay in registers while the taps
across and the groups of rows are added, and what follows the convolution is computed on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from host.lowering.ops.contraction.depthwise_dots import INTERLEAVED, ROWS, SUMS
from host.schedules.api import CPU, DecisionKind, Decisions, Level, Rule, Sampler, WordClass
from host.schedules.cpu.common import PEEL, TILE_VECTORS, divisors, fuse_parallel, inline_chain, schedule_copy
from host.schedules.cpu.lane_dots.cost import BESIDE_SUMS, CONSTANTS, lane_dots_seconds
from host.schedules.cpu.lane_dots.intrinsics import has_intrinsic, intrinsic
from host.schedules.cpu.lane_dots.shape import is_lane_dots, joined, joined_lanes, shape_of
from host.schedules.workload import Workload
from targets import HardwareModel

_MOST_VECTORS, _MOST_COLUMNS = 4, 16
# Dot products that are written out: LLVM compiles them in about a second.
_LARGEST_CODE = 512
_BANDS_OF_A_THREAD = 4


class LaneDots(Rule):
    """A tile of a band's rows, columns and vectors of channels."""

    name = "lane_dots"
    processor = CPU
    version = 1
    priority = 7
    constants = CONSTANTS
    decisions = (
        TILE_VECTORS,
        DecisionKind("columns", Level.REGISTER, WordClass.TILE, interleaves=True),
    )

    def matches(self, workload: Workload, hardware: HardwareModel) -> bool:
        """The function of such a convolution, whose blocks have these names; no other rule takes it."""
        if not is_lane_dots(workload):
            return False
        kinds = {stage.name: stage.kind for stage in workload.stages if stage.name not in (INTERLEAVED, SUMS)}
        shape = shape_of(workload)
        fits = has_intrinsic(hardware.dot_product, shape.lanes) and shape.signed == (
            hardware.dot_product == "s8s8"
        )
        return fits and set(kinds.values()) <= {"injective", "padding"}

    def choices(self, workload: Workload, hardware: HardwareModel) -> Mapping[str, tuple[int, ...]]:
        """Divisors: of the vectors of channels, and of the columns."""
        shape = shape_of(workload)
        return {
            "vectors": divisors(shape.vectors, _MOST_VECTORS),
            "columns": divisors(shape.width, _MOST_COLUMNS),
        }

    def legal(self, workload: Workload, hardware: HardwareModel, values: Decisions) -> bool:
        """The sums of a tile fit the registers, and its code stays within reason, or it is the least tile."""
        shape = shape_of(workload)
        tile = values["vectors"] * values["columns"]
        sums = shape.rows * tile
        fits = sums + BESIDE_SUMS <= hardware.vector_registers and sums * shape.taps <= _LARGEST_CODE
        return tile == 1 or fits

    def apply(self, sampler: Sampler, workload: Workload, hardware: HardwareModel, threads: int) -> None:
        """Tiles the result, and computes sums and interleaved rows where it needs them."""
        schedule, shape = sampler.schedule, shape_of(workload)
        names = [stage.name for stage in workload.stages]
        start = names.index(ROWS)
        for name in names[: names.index(INTERLEAVED)]:
            schedule.compute_inline(schedule.get_sblock(name))
        if joined(workload):
            [result] = inline_chain(schedule, names[start:])
        else:
            # What follows moves the rows: it is a pass of its own.
            result = ROWS
            for name in inline_chain(schedule, names[start + 1 :]):
                schedule_copy(schedule, name, hardware.lanes, threads)
        block = schedule.get_sblock(result)
        batch, y, x, channel = schedule.get_loops(block)
        band, row = schedule.split(y, [None, shape.rows])
        column, tile = schedule.split(x, [None, sampler.sample("columns")])
        panel, vector, lane = schedule.split(channel, [None, sampler.sample("vectors"), shape.lanes])
        schedule.reorder(batch, band, panel, column, row, tile, vector, lane)
        parts, band = _shared(schedule, band, shape.bands, threads)
        at_once = joined_lanes(shape, sampler.value("vectors"), hardware)
        if at_once > shape.lanes:
            _in_registers(schedule, row, tile, schedule.fuse(vector, lane))
        else:
            _in_registers(schedule, row, tile, vector, lane)
        sums = schedule.get_sblock(SUMS)
        schedule.compute_at(sums, column, preserve_unit_loops=True)
        schedule.set_scope(sums, 0, "local")
        interleaved = schedule.get_sblock(INTERLEAVED)
        schedule.compute_at(interleaved, panel, preserve_unit_loops=True)
        _interleave(schedule, interleaved, at_once, shape.padded)
        if shape.padded:
            schedule.annotate(band, PEEL, 1)
        if parts is not None:
            # Before the sums become an intrinsic, whose block TVM takes to depend on the order of its loops.
            fuse_parallel(schedule, [batch, parts], [shape.batch, int(schedule.get(parts).extent)], threads)
        _sum(schedule, sums, shape.lanes, hardware.dot_product)

    def estimate_s(
        self, workload: Workload, hardware: HardwareModel, threads: int, values: Decisions
    ) -> float:
        """Estimated seconds of one call, see `cost`."""
        return lane_dots_seconds(workload, hardware, threads, values)


def _shared(schedule: Any, band: Any, bands: int, threads: int) -> tuple[Any, Any]:
    """The loop over parts that threads share, None with one thread, and that over the bands of a part.

    The first and the last band of a part may be code of their own, so parts are not single bands where
    fewer are enough.
    """
    if threads <= 1:
        return None, band
    enough = [size for size in divisors(bands, bands) if size >= _BANDS_OF_A_THREAD * threads]
    parts, rest = schedule.split(band, [enough[0] if enough else bands, None])
    return parts, rest


def _in_registers(schedule: Any, *loops: Any) -> None:
    """Unrolls the loops of a tile; the last one is a vector."""
    for loop in loops[:-1]:
        schedule.unroll(loop)
    schedule.vectorize(loops[-1])


def _interleave(schedule: Any, block: Any, lanes: int, padded: bool) -> None:
    """Runs over the columns, the vectors of a panel inside; columns of the border are code of their own."""
    *_, column, channel = schedule.get_loops(block)
    vector, lane = schedule.split(channel, [None, lanes])
    _in_registers(schedule, vector, lane)
    if padded:
        schedule.annotate(column, PEEL, 1)


def _sum(schedule: Any, block: Any, lanes: int, kind: str) -> None:
    """Adds up a tile, group by group of rows, with everything inside written out."""
    row, column, channel, group, tap, byte = schedule.get_loops(block)[-6:]
    vector, lane = schedule.split(channel, [None, lanes])
    schedule.reorder(group, tap, row, column, vector, lane, byte)
    for loop in (tap, row, column, vector):
        schedule.unroll(loop)
    first = schedule.decompose_reduction(block, group)
    for loop in schedule.get_loops(first)[-4:-1]:
        schedule.unroll(loop)
    schedule.vectorize(schedule.get_loops(first)[-1])
    schedule.tensorize(lane, intrinsic(kind, lanes))


RULE = LaneDots()
