"""Estimated time of depthwise convolutions of bytes by dot products."""

from __future__ import annotations

from host.schedules.api import Decisions
from host.schedules.constants import EstimateConstant
from host.schedules.cpu.lane_dots.shape import Shape, joined_lanes, shape_of
from host.schedules.cpu.streams import shared_seconds
from host.schedules.workload import Workload
from targets import HardwareModel

# Cycles in which the bytes of four rows become one vector, and in which one vector of sums is scaled, rounded
# and stored. Kernels of 112x112x32, 28x28x64, 56x56x64 (stride 2) and 7x7x960 with windows of 3x3 and 5x5:
# 5.2 to 9.6 cycles a vector of the result, thread time on a Xeon of the fifth generation.
_INTERLEAVING = EstimateConstant("lane_dots.interleaving", 2.3)
_SCALING = EstimateConstant("lane_dots.scaling", 3.0)
# Cycles around a tile, and around a band of one panel of channels.
_TILE = EstimateConstant("lane_dots.tile", 6.0)
_BAND = EstimateConstant("lane_dots.band", 30.0)
# Slow-down of a tile that takes every register: what scales its sums needs some too. 112x112x96 with stride 2
# and two vectors in 2, 4, 8 and 14 columns: 110, 111, 112 to 123, and 126 to 140 us.
_CROWDED = EstimateConstant("lane_dots.crowded", 0.3)

# How much less interleaving several vectors at once takes than one by one: loads of whole registers and eight
# moves for four vectors in place of four times three, by their count.
_MOST_SAVED = 2.0
# Of a lane.
_BYTES = 4
# Registers beside the sums of a tile: interleaved bytes and weights.
BESIDE_SUMS = 2

CONSTANTS = (_INTERLEAVING, _SCALING, _TILE, _BAND, _CROWDED)


def lane_dots_seconds(workload: Workload, hardware: HardwareModel, threads: int, values: Decisions) -> float:
    """Estimated seconds of one call of a program of the `lane_dots` rule."""
    shape = shape_of(workload)
    panels = shape.batch * shape.bands * (shape.vectors // values["vectors"])
    tile = _tile_cycles(shape, hardware, values) * (shape.width // values["columns"])
    at_once = joined_lanes(shape, values["vectors"], hardware) / shape.lanes
    interleaved = shape.columns * shape.groups * values["vectors"] * _INTERLEAVING.on(hardware)
    interleaved /= min(at_once, _MOST_SAVED)
    cycles = panels * (tile + interleaved + _BAND.on(hardware))
    moved = max(panels * _spilled_s(shape, hardware, values), _moved_s(workload, hardware))
    return shared_seconds(max(cycles / hardware.frequency_hz, moved), hardware, threads)


def _tile_cycles(shape: Shape, hardware: HardwareModel, values: Decisions) -> float:
    """Cycles of a tile: its dot products, or what they load, or one chain of them; then its results."""
    sums = shape.rows * values["columns"] * values["vectors"]
    steps = shape.groups * shape.taps
    stride = max(1, (shape.columns - shape.taps) // max(1, shape.width - 1))
    read = (
        values["vectors"] * shape.groups * (shape.taps * shape.rows + values["columns"] * stride + shape.taps)
    )
    arithmetic = sums * steps / hardware.fma_per_cycle
    chain = steps * hardware.fma_latency_cycles
    loads = read / hardware.loads_per_cycle
    used = (sums + BESIDE_SUMS) / hardware.vector_registers
    crowding = 1.0 + _CROWDED.on(hardware) * max(0.0, used - 0.75) / 0.25
    return (max(arithmetic, chain, loads) + sums * _SCALING.on(hardware)) * crowding + _TILE.on(hardware)


def _spilled_s(shape: Shape, hardware: HardwareModel, values: Decisions) -> float:
    """Seconds in which a panel's interleaved rows go to the second level and back, where the first is full.

    The lines of the image that hold the panel, and those of other channels in them, are in there too.
    112x112x96 with stride 2 in panels of 1, 2 and 3 vectors, the last of which do not fit into 48 KB: 106,
    112 and 144 us.
    """
    first, second = hardware.levels[:2]
    panel = values["vectors"] * shape.lanes
    positions = shape.columns * shape.groups
    image = _BYTES * positions * (-(-panel // first.line_bytes) * first.line_bytes)
    interleaved = _BYTES * positions * panel
    if image + interleaved <= first.size_bytes:
        return 0.0
    return (image + 2.0 * interleaved) / second.bandwidth_bytes_per_s


def _moved_s(workload: Workload, hardware: HardwareModel) -> float:
    """Seconds in which each argument is read, and the result written, once."""
    found = {access.buffer: access for stage in workload.stages for access in stage.reads if access.argument}
    last = workload.stages[-1].write
    size = sum(access.elements * access.element_bytes for access in (*found.values(), last))
    return size / hardware.level_of(size).bandwidth_bytes_per_s
