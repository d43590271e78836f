"""Estimated time of products with quantised weights."""

from __future__ import annotations

from host.lowering.quantised import product as parts
from host.schedules.api import Decisions
from host.schedules.constants import EstimateConstant
from host.schedules.cpu.streams import shared_seconds
from host.schedules.cpu.traffic import resident_level
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
# Each panel of a tile is a stream. One alone has this share of a level's bandwidth (a Xeon with AMX: 10 GB/s,
# and 19 GB/s with two), and each one of more than four costs this share more time.
_ONE_STREAM, _CROWD = (
    EstimateConstant("quantised.one_stream", 0.55),
    EstimateConstant("quantised.crowd", 0.06),
)
_MOST_STREAMS = 4

CONSTANTS = (
    _STEP_OPERATIONS,
    _SCALE_OPERATIONS,
    _LOOP_CYCLES,
    _EXPOSED,
    _ROUND_CYCLES,
    _ONE_STREAM,
    _CROWD,
)


def quantised_seconds(workload: Workload, hardware: HardwareModel, threads: int, values: Decisions) -> float:
    """Estimated seconds of one call of a program of the `quantised` rule.

    A step of a group is one instruction for each row, and what prepares the weights is shared by the rows of
    a tile. Weights come from the memory that holds them, once for all rows of a tile.
    """
    dots = next(stage for stage in workload.stages if stage.name == parts.DOTS)
    rows, panels, groups, planes, steps, lanes = (axis.extent for axis in dots.axes[:6])
    tall, wide = values["rows"], values["vectors"]
    operations = steps * wide * (tall * planes + _STEP_OPERATIONS.on(hardware))
    operations += _SCALE_OPERATIONS.on(hardware) * tall * wide
    # The sums of a group wait for each other unless several are under way.
    latency = steps * hardware.fma_latency_cycles / min(values["unroll"] * 2.0, steps)
    cycles = max(operations / min(hardware.issue_width, 3.0), latency)
    cycles += _LOOP_CYCLES.on(hardware) / values["unroll"]
    tiles = (rows // tall) * (panels // wide) * groups
    seconds = tiles * cycles / hardware.frequency_hz
    weight = next(access for access in dots.reads if access.buffer != parts.ROUNDED)
    size = weight.elements * weight.element_bytes + 2 * panels * groups * lanes
    moved = size / resident_level(hardware.levels, size).bandwidth_bytes_per_s
    panel = size // panels * wide
    moved += (rows // tall - 1) * size / resident_level(hardware.levels, panel).bandwidth_bytes_per_s
    moved /= min(1.0, _ONE_STREAM.on(hardware) * wide)
    crowded = 1.0 + _CROWD.on(hardware) * max(0, wide - _MOST_STREAMS)
    seconds, moved = seconds * crowded, moved * crowded
    total = max(seconds, moved) + _EXPOSED.on(hardware) * min(seconds, moved)
    rounded = rows * groups * 32 / lanes * _ROUND_CYCLES.on(hardware) / hardware.frequency_hz
    return shared_seconds(total, hardware, threads) + rounded
