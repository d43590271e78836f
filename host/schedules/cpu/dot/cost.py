"""Estimated time of products of bytes."""

from __future__ import annotations

from dataclasses import replace

from host.schedules.api import Decisions
from host.schedules.cpu.dot.intrinsics import INSTRUCTION
from host.schedules.cpu.dot.stage import in_lanes
from host.schedules.cpu.tiled.cost import tiled_seconds
from host.schedules.workload import Workload
from targets import HardwareModel

# Vector operations for a vector of sums without the instruction: four products, each widened and added.
_PLAIN_OPERATIONS = 12.0


def dot_seconds(workload: Workload, hardware: HardwareModel, threads: int, values: Decisions) -> float:
    """Estimated seconds of one call of a program of the `dot` rule.

    The instruction starts as often as a fused multiply-add and does the work of four: in elements of four
    bytes the estimate is that of `tiled`.
    """
    if values["intrinsic"] != INSTRUCTION:
        hardware = replace(hardware, fma_per_cycle=hardware.fma_per_cycle / _PLAIN_OPERATIONS)
    return tiled_seconds(in_lanes(workload), hardware, threads, values)
