"""Estimated time of attention over a cache: multiply-adds of both products, or reading the cache once."""

from __future__ import annotations

from host.lowering.decoding.blocked import block_positions, has_blocks
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
    rows = shape.rows * shape.heads
    positions = shape.capacity * _FILLED.on(hardware)
    steps = 2.0 * rows * positions * shape.size / hardware.lanes
    arithmetic = steps * _STEP_CYCLES.on(hardware) / hardware.fma_per_cycle / hardware.frequency_hz
    kept = 2.0 * shape.key_heads * positions * shape.size * shape.element_bytes
    moved = kept / hardware.level_of(kept).bandwidth_bytes_per_s
    seconds = max(arithmetic, moved)
    if threads <= 1:
        return seconds
    merged = 0.0
    if splits > 1:
        held = max(1, -(-int(positions) // block_positions(shape)))
        # As if all parts were as long as the longest.
        seconds *= -(-held // splits) * splits / held
        seconds += rows * splits * _PART_CYCLES.on(hardware) / hardware.frequency_hz
        vectors = rows * splits * shape.size / hardware.lanes
        merged = vectors * _MERGE_CYCLES.on(hardware) / hardware.frequency_hz
        merged = shared_seconds(merged, hardware, threads) if has_blocks(shape) else merged
    blocks = shape.key_heads * splits
    return seconds * -(-blocks // threads) / blocks + merged + hardware.parallel_launch_s
