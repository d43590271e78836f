"""Estimated time of products with quantised weights."""

from __future__ import annotations

import math

from host.lowering.quantised import product as parts
from host.schedules.api import Decisions
from host.schedules.constants import EstimateConstant
from host.schedules.cpu.streams import shared_seconds
from host.schedules.workload import Workload
from targets import HardwareModel

# Vector instructions of a step of a group beyond the multiplication: taking half bytes apart, broadcasting.
_STEP_OPERATIONS = EstimateConstant("quantised.step_operations", 1.0)
# Vector instructions that scale the sums of a group.
_SCALE_OPERATIONS = EstimateConstant("quantised.scale_operations", 4.0)
# Cycles of a loop's own instructions.
_LOOP_CYCLES = EstimateConstant("quantised.loop", 1.0)
# Share of the transfer that arithmetic does not hide.
_EXPOSED = EstimateConstant("quantised.exposed", 0.2)
# Cycles of rounding one vector of activations.
_ROUND_CYCLES = EstimateConstant("quantised.round", 12.0)
# Each panel of a tile is a stream. What the processor fetches by itself gives one alone this share of the
# memory's bandwidth, and several this one (a Xeon with AMX: 10 and 20 of 27 GB/s).
_ONE_STREAM = EstimateConstant("quantised.one_stream", 0.4)
_STREAMS = EstimateConstant("quantised.streams", 0.75)
# Bytes that have to be on their way for all of the bandwidth.
_ON_THE_WAY = EstimateConstant("quantised.on_the_way", 8192.0)
# Share of the time that each group beyond the first costs whose bytes are fetched in one burst, and each
# stream beyond the fourth where nothing is fetched ahead.
_CROWD = EstimateConstant("quantised.crowd", 0.05)
_MOST_STREAMS = 4
# Elements of a row in products of matrices.
_MATRIX_WIDTH = 8
# Registers of a weight, its half bytes and its scale, beside the sums of a group; cycles of a vector that
# goes to memory and back.
_BESIDE_SUMS, _SPILLED_CYCLES = 4, 3.0

CONSTANTS = (
    _STEP_OPERATIONS,
    _SCALE_OPERATIONS,
    _LOOP_CYCLES,
    _EXPOSED,
    _ROUND_CYCLES,
    _ONE_STREAM,
    _STREAMS,
    _ON_THE_WAY,
    _CROWD,
)


def quantised_seconds(workload: Workload, hardware: HardwareModel, threads: int, values: Decisions) -> float:
    """Estimated seconds of one call of a program of the `quantised` rule.

    A step of a group is one instruction for each row, and what prepares the weights is shared by the rows of
    a tile. Weights come from memory, as a model has more of them than a cache holds, and for the other tiles
    of rows from the cache that holds a panel.
    """
    dots = workload.stage(parts.DOTS)
    rows, panels, groups, planes, steps, lanes, width = (axis.extent for axis in dots.axes[:7])
    tall, wide = values["rows"], values["vectors"]
    weight = next(access for access in dots.reads if access.buffer != parts.ROUNDED)
    group_bytes = math.prod(weight.shape[2:]) * weight.element_bytes
    # Vectors of a panel.
    each = max(1, lanes // max(4, hardware.lanes))
    if width == 1 and each > 1:
        # Of 16 bits, which is what products of bytes one by one are summed in.
        each //= 2
    if width == _MATRIX_WIDTH:
        # Two vectors of weights in place of one, for two rows or both planes of one. Rows are joined, and the
        # sums of both are taken apart.
        pairs = math.ceil(tall * planes / 2)
        operations = 2 * each * steps * wide * (pairs + _STEP_OPERATIONS.on(hardware))
        operations += pairs * (2 * each * wide + (steps if planes == 1 else 0))
    else:
        operations = each * steps * wide * (tall * planes + _STEP_OPERATIONS.on(hardware))
    operations += each * _SCALE_OPERATIONS.on(hardware) * tall * wide
    if values["ahead"]:
        operations += wide * group_bytes / hardware.levels[0].line_bytes
    # The sums of a group wait for each other unless several are under way.
    latency = steps * hardware.fma_latency_cycles / min(values["unroll"] * 2.0, steps)
    cycles = max(operations / min(hardware.issue_width, 3.0), latency)
    cycles += _LOOP_CYCLES.on(hardware) / values["unroll"]
    if hardware.dot_product == "u8s8" and tall > 1:
        # Beside the sums so far, each unrolled group has products of each plane, and what two are joined to.
        sums = each * tall * wide * (1 + (2 * planes - 1) * values["unroll"])
        cycles += _spilled_cycles(hardware, sums + _BESIDE_SUMS * values["unroll"])
    seconds = (rows // tall) * (panels // wide) * groups * cycles / hardware.frequency_hz
    size = panels * groups * group_bytes + _scale_bytes(workload)
    moved = size / hardware.levels[-1].bandwidth_bytes_per_s / _share(hardware, values, group_bytes)
    panel = size // panels * wide
    moved += (rows // tall - 1) * size / hardware.level_of(panel).bandwidth_bytes_per_s
    total = max(seconds, moved) + _EXPOSED.on(hardware) * min(seconds, moved)
    burst = wide * values["unroll"] - 1 if values["ahead"] else max(0, wide - _MOST_STREAMS)
    total *= 1.0 + _CROWD.on(hardware) * burst
    rounded = (
        rows * groups * (steps * width) * each / lanes * _ROUND_CYCLES.on(hardware) / hardware.frequency_hz
    )
    return shared_seconds(total, hardware, threads) + rounded


def _spilled_cycles(hardware: HardwareModel, vectors: int) -> float:
    """Cycles of a group in which sums go to memory and back, where VPDPBUSD takes several rows step by step.

    The products of a group, and of those that are unrolled with it, are kept for all rows beside the sums of
    the groups before it. A core with one unit of 512 bits stores such a vector in two cycles and loads it in
    one. Others are taken to do so beside the arithmetic.
    """
    beyond = max(0, vectors - hardware.vector_registers)
    return beyond * _SPILLED_CYCLES if hardware.fma_per_cycle < 2.0 else 0.0


def _scale_bytes(workload: Workload) -> int:
    """Bytes of the scales of the weight, and of whatever else its groups and blocks have."""
    totals = next(stage for stage in workload.stages if stage.name == parts.TOTALS)
    read = {access.buffer: access for access in totals.reads if access.argument}
    return sum(access.elements * access.element_bytes for access in read.values())


def _share(hardware: HardwareModel, values: Decisions, group_bytes: int) -> float:
    """Share of the memory's bandwidth that a program reaches, by the bytes that it requests at a time."""
    wide = values["vectors"]
    own = min(_STREAMS.on(hardware), _ONE_STREAM.on(hardware) * wide)
    return max(own, min(1.0, values["ahead"] * group_bytes * wide / _ON_THE_WAY.on(hardware)))
