"""Estimated time of products with quantised weights in tiles."""

from __future__ import annotations

import math

from host.lowering.quantised import product as parts
from host.schedules.api import Decisions
from host.schedules.constants import EstimateConstant
from host.schedules.cpu.streams import shared_seconds
from host.schedules.workload import Workload
from targets import HardwareModel

# Vector operations that take 16 weights apart, for two that start in a cycle.
_APART_OPERATIONS = EstimateConstant("quantised_tiles.apart_operations", 4.5)
# Share of arithmetic and transfers that the longest of them does not hide.
_EXPOSED = EstimateConstant("quantised_tiles.exposed", 0.3)
# Cycles of a step's own instructions.
_TURN_CYCLES = EstimateConstant("quantised_tiles.turn", 4.0)
# Cycles of a row of sums that is stored, or comes back where there are further groups.
_SUM_CYCLES = EstimateConstant("quantised_tiles.sum", 5.0)
# Cycles of rounding one vector of activations and storing it in its tile.
_ROUND_CYCLES = EstimateConstant("quantised_tiles.round", 3.0)

CONSTANTS = (_APART_OPERATIONS, _EXPOSED, _TURN_CYCLES, _SUM_CYCLES, _ROUND_CYCLES)
# Elements of a row of a tile; bytes of a tile and of a vector; products where both operands are two numbers.
_DEPTH, _TILE_BYTES, _LINE_BYTES, _EXACT_PRODUCTS = 32, 1024, 64, 3


def quantised_tiles_seconds(
    workload: Workload,
    hardware: HardwareModel,
    threads: int,
    values: Decisions,
    sharing: int = 1,
    activation_cycles: float = 0.0,
) -> float:
    """Estimated seconds of one call of a program of the `quantised_tiles` rule, and of `gated_tiles`.

    Products of tiles, the loads of their operands and taking the next block apart overlap. Rows come from the
    cache that holds all of them, and weights that were taken apart from the first one or that of two blocks.

    Args:
        workload: of the function.
        hardware: the processor.
        threads: of the program.
        values: its decisions.
        sharing: panels of the weight that a panel of the result is made of.
        activation_cycles: of a vector of results, beside what its sums take.
    """
    tiles = hardware.matrix_tiles
    assert tiles is not None, "the rule matched before"
    dots = workload.stage(parts.DOTS)
    rows, panels, groups, planes, steps, lanes, width = (axis.extent for axis in dots.axes[:7])
    wide, tall, together = values["vectors"] * sharing, values["rows"], values["depth"]
    depth, frequency = groups * steps * width, hardware.frequency_hz
    pair = 2 if wide % 2 == 0 else 1
    of_part = together * steps * width // _DEPTH
    turns, every = rows // (tiles.rows * tall), groups // together
    weight = next(access for access in dots.reads if access.buffer != parts.ROUNDED)
    size = panels * groups * math.prod(weight.shape[2:]) * weight.element_bytes
    # What a step multiplies, loads and takes apart.
    products = tall * pair * (_EXACT_PRODUCTS if planes == 2 else 1)
    multiplied = products * tiles.row_cycles * tiles.rows + _TURN_CYCLES.on(hardware)
    rows_s = _seconds_a_byte(hardware, rows * depth * 2 * planes)
    # A turn begins with the steps of the one before it that the first cache level still holds.
    step_bytes = (pair + tall) * _TILE_BYTES * planes
    kept = min(1.0, hardware.levels[0].size_bytes / step_bytes / of_part)
    block_s = _seconds_a_byte(hardware, 2 * pair * of_part * _TILE_BYTES * planes)
    block_s = kept / hardware.levels[0].bandwidth_bytes_per_s + (1.0 - kept) * block_s
    loads = _TILE_BYTES * planes * (tall * rows_s + pair * block_s) * frequency
    vector = _APART_OPERATIONS.on(hardware) / 2 * planes * _DEPTH
    vectors = size // (panels * depth // _DEPTH * _LINE_BYTES)
    apart = vector / vectors * -(-pair * vectors // turns)
    activated = activation_cycles * tiles.rows * tall * pair / sharing / (of_part * every)
    step = _overlapped(hardware, multiplied, loads, apart + activated)
    moved = tiles.rows * tall * pair * _SUM_CYCLES.on(hardware) * (2.0 - 1.0 / every)
    begun = of_part * pair * vector
    cycles = panels // pair * every * turns * (of_part * step + moved) + panels // wide * begun
    written = rows * panels // sharing * lanes * workload.stages[-1].write.element_bytes
    written_s = written * _seconds_a_byte(hardware, written)
    read_s = size / hardware.levels[-1].bandwidth_bytes_per_s
    total = _overlapped(hardware, cycles / frequency, written_s, read_s)
    calls = panels // wide
    # The last calls leave threads without any.
    total *= -(-calls // threads) * threads / calls
    rounded = rows * depth * planes / hardware.lanes * _ROUND_CYCLES.on(hardware) / frequency
    in_tiles = any(access.type.name == parts.TILED for access in workload.stage(parts.LARGEST).reads)
    return shared_seconds(total + (0.0 if in_tiles else rounded), hardware, threads)


def _overlapped(hardware: HardwareModel, *times: float) -> float:
    """What takes place at the same time: the longest, and a share of the others."""
    return max(times) + _EXPOSED.on(hardware) * (sum(times) - max(times))


def _seconds_a_byte(hardware: HardwareModel, size: int) -> float:
    """Seconds in which a byte comes from the level that holds so many."""
    return 1.0 / hardware.level_of(size).bandwidth_bytes_per_s
