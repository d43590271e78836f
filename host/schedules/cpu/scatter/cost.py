"""Estimated time of a scatter: a copy of the data, and updates whose places lie anywhere in it."""

from __future__ import annotations

from host.lowering.types import numeric_type
from host.schedules.constants import EstimateConstant
from host.schedules.cpu.scatter.program import part_of
from host.schedules.cpu.streams import shared_seconds
from host.schedules.scatter import Scatter
from targets import HardwareModel

# Cycles of finding a place and deciding whose it is.
_PLACE_CYCLES = EstimateConstant("scatter.place", 2.0)
# Cycles of a vector that is loaded, combined and stored, and of an element that has a place of its own.
_VECTOR_CYCLES = EstimateConstant("scatter.vector", 2.0)
_ELEMENT_CYCLES = EstimateConstant("scatter.element", 3.0)

CONSTANTS = (_PLACE_CYCLES, _VECTOR_CYCLES, _ELEMENT_CYCLES)
# Bytes of a number of a place.
_PLACE_BYTES = 8.0


def scatter_seconds(
    scatter: Scatter, hardware: HardwareModel, threads: int, columns: int, splits: int
) -> float:
    """Estimated seconds of one call of a program of the `scatter` rule.

    Updates are taken to be spread over the places evenly. A step fetches the lines of each update from the
    memory level that holds its part of the result, and writes them back.
    """
    element = float(numeric_type(scatter.dtype).bytes)
    tiles = -(-scatter.inner // columns)
    steps = scatter.outer * tiles * splits
    updates = scatter.outer * scatter.count
    if scatter.by_row:
        vectors = updates * tiles * -(-columns // hardware.lanes)
        found = updates * tiles * splits
        cycles = found * _PLACE_CYCLES.on(hardware) + vectors * _VECTOR_CYCLES.on(hardware)
        touched, run = updates * tiles, columns * element
    else:
        found = updates * scatter.inner * splits
        cycles = found * _PLACE_CYCLES.on(hardware)
        cycles += updates * scatter.inner * _ELEMENT_CYCLES.on(hardware)
        touched, run = updates * scatter.inner, element
    part = part_of(scatter.size, splits) * columns * element
    level = hardware.level_of(int(part))
    lines = -(-run // level.line_bytes) * level.line_bytes
    moved = 2.0 * touched * lines / level.bandwidth_bytes_per_s
    whole = scatter.results * element
    streamed = 2.0 * whole + updates * scatter.inner * element + found * len(scatter.strides) * _PLACE_BYTES
    streams = streamed / hardware.level_of(int(streamed)).bandwidth_bytes_per_s
    seconds = max(cycles / hardware.frequency_hz, moved) + streams
    # The last steps leave threads without any.
    return shared_seconds(seconds * -(-steps // threads) * threads / steps, hardware, threads)
