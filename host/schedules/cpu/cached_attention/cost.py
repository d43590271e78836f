"""Estimated time of attention over a cache: multiply-adds of both products, or reading the cache once."""

from __future__ import annotations

import math

from host.lowering.decoding.blocked import block_positions, has_blocks
from host.lowering.decoding.lines import POSITIONS
from host.lowering.decoding.shape import CacheShape
from host.schedules.constants import EstimateConstant
from host.schedules.cpu.streams import shared_seconds
from targets import HardwareModel

# Share of the cache that a call reads on the average of a text, from none to all of its places.
_FILLED = EstimateConstant("cached_attention.filled", 0.5)
# Cycles of a multiply-add of whole vectors with what surrounds it.
_STEP_CYCLES = EstimateConstant("cached_attention.step", 1.5)
# Cycles by which a part of the positions begins and ends, for each of its rows: sums and extremes across the
# lanes, and the power in which it weighs.
_PART_CYCLES = EstimateConstant("cached_attention.part", 100.0)
# Cycles of a vector of a part's sums, which is stored, loaded and added up.
_MERGE_CYCLES = EstimateConstant("cached_attention.merge", 3.0)

# Share of the time of both products with what surrounds them that is left where operands are rounded to
# bfloat16 (heads of 64 to 128 elements on a Zen 4).
_ROUNDED = 0.7
# The same where registers of matrices multiply them.
_IN_TILES = 0.3

# Launches of a parallel loop that sharing has to save: threads that sleep take several times as long to wake.
_LAUNCHES = 4.0

CONSTANTS = (_FILLED, _STEP_CYCLES, _PART_CYCLES, _MERGE_CYCLES)


def cached_attention_seconds(shape: CacheShape, hardware: HardwareModel, threads: int, splits: int) -> float:
    """Estimated seconds of one call of a program of the `cached_attention` rule.

    Threads take whole blocks of the program, and all of them wait for the one that has the most.

    Args:
        shape: extents of the function.
        hardware: the processor.
        threads: that share a call.
        splits: parts of the positions of a head of keys.
    """
    positions = min(shape.capacity * _FILLED.on(hardware), float(read_at_most(shape)))
    seconds = _seconds_of(shape, hardware, positions)
    if threads <= 1:
        return seconds
    if splits == 1:
        return seconds * -(-shape.key_heads // threads) / shape.key_heads + hardware.parallel_launch_s
    rows, merged = shape.rows * shape.heads, _merge_seconds(shape, hardware, splits)
    begun = rows * splits * _PART_CYCLES.on(hardware) / hardware.frequency_hz
    if positions < shared_from(shape, hardware, splits):
        return seconds + begun + merged
    held = max(1, -(-int(positions) // block_positions(shape)))
    # As if all parts were as long as the longest.
    seconds *= -(-held // splits) * splits / held
    merged = shared_seconds(merged, hardware, threads) if has_blocks(shape) else merged
    blocks = shape.key_heads * splits
    return (seconds + begun) * -(-blocks // threads) / blocks + merged + hardware.parallel_launch_s


def shared_from(shape: CacheShape, hardware: HardwareModel, splits: int) -> int:
    """Positions from which on a program wakes threads for its parts: fewer take less time in the calling one.

    Args:
        shape: extents of the function.
        hardware: the processor.
        splits: parts of the positions, more than one.
    """
    saved_s = _seconds_of(shape, hardware, POSITIONS) / POSITIONS * (1.0 - 1.0 / splits)
    return math.ceil(_LAUNCHES * hardware.parallel_launch_s / saved_s)


def read_at_most(shape: CacheShape) -> int:
    """Positions that a call reads at most."""
    return min(shape.capacity, shape.window + shape.rows) if shape.window else shape.capacity


def _seconds_of(shape: CacheShape, hardware: HardwareModel, positions: float) -> float:
    """Seconds of one thread for both products of so many positions."""
    steps = 2.0 * shape.rows * shape.heads * positions * shape.size / hardware.lanes
    arithmetic = steps * _STEP_CYCLES.on(hardware) / hardware.fma_per_cycle / hardware.frequency_hz
    arithmetic *= _IN_TILES if shape.in_tiles else _ROUNDED if shape.rounded else 1.0
    kept = 2.0 * shape.key_heads * positions * shape.size * shape.element_bytes
    return max(arithmetic, kept / hardware.level_of(kept).bandwidth_bytes_per_s)


def _merge_seconds(shape: CacheShape, hardware: HardwareModel, splits: int) -> float:
    """Seconds of one thread in which the sums of parts are added up; they are written and read once."""
    vectors = shape.rows * shape.heads * splits * shape.size / hardware.lanes
    arithmetic = vectors * _MERGE_CYCLES.on(hardware) / hardware.frequency_hz
    size = part_bytes(shape, splits)
    return max(arithmetic, 2.0 * size / hardware.level_of(size).bandwidth_bytes_per_s)


def part_bytes(shape: CacheShape, splits: int) -> int:
    """Bytes of the sums of values that the parts of all rows leave."""
    return 4 * splits * shape.rows * shape.heads * shape.size
