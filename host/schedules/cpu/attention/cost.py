"""Estimated time of attention by blocks of rows."""

from __future__ import annotations

import math

from host.lowering.attention import function as parts
from host.schedules.api import Decisions
from host.schedules.constants import EstimateConstant
from host.schedules.cpu.streams import OPERATIONS_PER_CYCLE, elementwise_cycles, shared_seconds
from host.schedules.workload import Stage, Workload
from targets import HardwareModel

# Cycles of a loop's own instructions, and of filling and storing the registers of a tile.
_LOOP_CYCLES = EstimateConstant("attention.loop", 1.0)
_TILE_CYCLES = EstimateConstant("attention.tile_overhead", 16.0)
_STORE_CYCLES = EstimateConstant("attention.store", 2.0)
# Cycles of an element of a key that is packed: keys are read across, one element after the other.
_TURNED_CYCLES = EstimateConstant("attention.turned", 1.0)
# Share of the transfers that arithmetic does not hide.
_EXPOSED = EstimateConstant("attention.exposed", 0.3)

CONSTANTS = (_LOOP_CYCLES, _TILE_CYCLES, _STORE_CYCLES, _TURNED_CYCLES, _EXPOSED, OPERATIONS_PER_CYCLE)


def attention_seconds(workload: Workload, hardware: HardwareModel, threads: int, values: Decisions) -> float:
    """Estimated seconds of one call of a program of the `attention` rule.

    Products take their arithmetic, or what comes from the level that holds a block's scores and the packed
    operands of one head, which each block reads whole. Values that do not stay in the first level while the
    tiles of a block take them are read by each tile.
    """
    stages = {stage.name: stage for stage in workload.stages}
    scores, mixed = stages[parts.SCORES], stages[parts.MIXED]
    rows = scores.axes[-3].extent
    heads = math.prod(axis.extent for axis in scores.axes[:-3])
    tiles = values["block"]
    block = tiles * values["rows"]
    blocks = heads * rows // block
    cycles = sum(_product_cycles(stage, hardware, values) for stage in (scores, mixed))
    cycles += _carried_cycles(mixed, hardware, values)
    cycles += sum(_softmax_cycles(stage, hardware) for stage in workload.stages)
    keys_bytes, values_bytes = (
        stages[name].write.elements * stages[name].write.element_bytes for name in (parts.KEYS, parts.VALUES)
    )
    operands = keys_bytes + values_bytes
    a_head = operands / heads
    a_block = 4.0 * block * scores.axes[-2].extent
    # Written, read for the maximum and the powers, and read for the result.
    moved = 4.0 * a_block / hardware.level_of(a_block).bandwidth_bytes_per_s
    moved += a_head / hardware.level_of(a_head + a_block).bandwidth_bytes_per_s
    panel = (
        4.0 * values["depth"] * (values["vectors"] * stages[parts.VALUES].write.shape[-1] + values["rows"])
    )
    level = hardware.level_of(panel)
    if level is not hardware.levels[0]:
        moved += (tiles - 1) * values_bytes / heads / level.bandwidth_bytes_per_s
    seconds = max(cycles / hardware.frequency_hz, blocks * moved)
    seconds += _EXPOSED.on(hardware) * blocks * moved
    if threads > 1:
        seconds *= -(-blocks // threads) * threads / blocks
    keys = stages[parts.KEYS].points * _TURNED_CYCLES.on(hardware) / hardware.frequency_hz
    if parts.BIAS in stages:
        operands += stages[parts.BIAS].write.elements * stages[parts.BIAS].write.element_bytes
    copied = keys + 2.0 * operands / hardware.level_of(2.0 * operands).bandwidth_bytes_per_s
    return shared_seconds(seconds, hardware, threads) + shared_seconds(copied, hardware, threads)


def _product_cycles(product: Stage, hardware: HardwareModel, values: Decisions) -> float:
    """Cycles of a product: multiply-adds, their latency, loads, or instructions, whichever takes longest."""
    rows, vectors = values["rows"], values["vectors"]
    depth = product.axes[-1].extent
    packed = next(access for access in product.reads if access.buffer in (parts.KEYS, parts.VALUES))
    sums = rows * vectors
    # Tiles shorter than what the core looks ahead overlap with the next ones.
    overlapping = max(1.0, hardware.look_ahead / (sums * depth))
    step = max(
        sums / hardware.fma_per_cycle,
        hardware.fma_latency_cycles / overlapping,
        (vectors + rows) / hardware.loads_per_cycle,
        (sums + vectors + rows + _LOOP_CYCLES.on(hardware) / values["unroll"]) / hardware.issue_width,
    )
    tiles = product.points / depth / (sums * packed.shape[-1])
    return tiles * (depth * step + _TILE_CYCLES.on(hardware) + _STORE_CYCLES.on(hardware) * sums)


def _carried_cycles(mixed: Stage, hardware: HardwareModel, values: Decisions) -> float:
    """Cycles in which sums go to memory and come back between one part of the values and the next."""
    depth = mixed.axes[-1].extent
    packed = next(access for access in mixed.reads if access.buffer == parts.VALUES)
    vectors = mixed.points / depth / packed.shape[-1]
    return (depth / values["depth"] - 1.0) * vectors * 2.0 * _STORE_CYCLES.on(hardware)


def _softmax_cycles(stage: Stage, hardware: HardwareModel) -> float:
    """Cycles of a stage of the softmax, and of what is computed of queries and weights; 0 of the others."""
    if stage.name in (parts.POWERS, parts.WEIGHTS, parts.QUERIES):
        return elementwise_cycles(stage, hardware)
    if not stage.name.startswith((parts.LARGEST, parts.TOTAL)):
        return 0.0
    # Vectors that are combined one after the other; short ones wait for each other.
    width = stage.axes[-2].extent
    if width >= hardware.lanes:
        return stage.points / hardware.lanes / hardware.fma_per_cycle
    return stage.points / width * hardware.fma_latency_cycles / 2.0
