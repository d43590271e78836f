"""Estimated time of products with quantised weights in tiles."""

from __future__ import annotations

import math

from host.lowering.quantised import product as parts
from host.schedules.api import Decisions
from host.schedules.constants import EstimateConstant
from host.schedules.cpu.streams import shared_seconds
from host.schedules.workload import Workload
from targets import HardwareModel

# Vector operations that take one vector of weights apart, for two that start in a cycle.
_APART_OPERATIONS = EstimateConstant("quantised_tiles.apart_operations", 5.0)
# Share of the shorter of arithmetic and transfer that the longer does not hide.
_EXPOSED = EstimateConstant("quantised_tiles.exposed", 0.2)
# Cycles of a turn's own instructions.
_TURN_CYCLES = EstimateConstant("quantised_tiles.turn", 4.0)
# Cycles of a row of sums that goes to the result, and comes back where there are further groups.
_SUM_CYCLES = EstimateConstant("quantised_tiles.sum", 4.0)
# Cycles of rounding one vector of activations and storing it in its tile.
_ROUND_CYCLES = EstimateConstant("quantised_tiles.round", 3.0)

CONSTANTS = (_APART_OPERATIONS, _EXPOSED, _TURN_CYCLES, _SUM_CYCLES, _ROUND_CYCLES)
# Elements of a row of a tile, and bytes of a tile.
_DEPTH, _TILE_BYTES = 32, 1024


def quantised_tiles_seconds(
    workload: Workload, hardware: HardwareModel, threads: int, values: Decisions
) -> float:
    """Estimated seconds of one call of a program of the `quantised_tiles` rule.

    Products of tiles and the loads of their operands overlap. Rows pass by for every few panels, from the
    cache that holds all of them; weights that were taken apart come from the one that holds those and the
    rows' tiles of the same depth.
    """
    tiles = hardware.matrix_tiles
    assert tiles is not None, "the rule matched before"
    dots = workload.stage(parts.DOTS)
    rows, panels, groups, _, steps, lanes, width = (axis.extent for axis in dots.axes[:7])
    wide, tall, together = values["vectors"], values["rows"], values["depth"]
    depth, frequency = groups * steps * width, hardware.frequency_hz
    products = rows // tiles.rows * panels * (depth // _DEPTH)
    pair = 2 if wide % 2 == 0 else 1
    turns = products / (pair * tall)
    # Rows come from where all of them lie for the first panels, and then from where a tile of them does.
    held = tall * tiles.rows * together * steps * width * 2
    rows_s = _seconds_a_byte(hardware, rows * depth * 2) * pair / wide
    rows_s += _seconds_a_byte(hardware, held) * (1.0 - pair / wide)
    apart_s = _seconds_a_byte(hardware, wide * together * steps * width * lanes * 2 + held)
    loads = turns * _TILE_BYTES * (tall * rows_s + pair * apart_s)
    arithmetic = (products * tiles.row_cycles * tiles.rows + turns * _TURN_CYCLES.on(hardware)) / frequency
    sums = rows * panels * (groups // together) * _SUM_CYCLES.on(hardware) / frequency
    apart = panels * depth * _APART_OPERATIONS.on(hardware) / 2 / frequency
    seconds = max(arithmetic, loads) + _EXPOSED.on(hardware) * min(arithmetic, loads) + sums + apart
    weight = next(access for access in dots.reads if access.buffer != parts.ROUNDED)
    size = panels * groups * math.prod(weight.shape[2:]) * weight.element_bytes
    moved = size / hardware.levels[-1].bandwidth_bytes_per_s
    total = max(seconds, moved) + _EXPOSED.on(hardware) * min(seconds, moved)
    rounded = rows * depth / hardware.lanes * _ROUND_CYCLES.on(hardware) / frequency
    return shared_seconds(total + rounded, hardware, threads)


def _seconds_a_byte(hardware: HardwareModel, size: int) -> float:
    """Seconds in which a byte comes from the level that holds so many."""
    return 1.0 / hardware.level_of(size).bandwidth_bytes_per_s
