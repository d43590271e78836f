"""Estimated time of products with sums in halves."""

from __future__ import annotations

import math

from host.schedules.api import Decisions
from host.schedules.constants import EstimateConstant
from host.schedules.cpu.half_sums.stage import as_one_sum
from host.schedules.cpu.tiled.cost import CONSTANTS as TILED_CONSTANTS
from host.schedules.cpu.tiled.cost import tiled_seconds
from host.schedules.workload import Workload
from targets import HardwareModel

# Operations that add the sums of one block to those in single precision, for each vector of halves: two
# conversions and two additions.
_ADDED_UP = EstimateConstant("half_sums.added_up", 4.0)

CONSTANTS = (_ADDED_UP, *TILED_CONSTANTS)


def half_sums_seconds(workload: Workload, hardware: HardwareModel, threads: int, values: Decisions) -> float:
    """Estimated seconds of one call: that of `tiled` with twice the lanes, and what adds up blocks."""
    one, wide = as_one_sum(workload), hardware.on_halves()
    seconds = tiled_seconds(one, wide, threads, values)
    anchor = one.anchor_stage
    blocks = math.prod(axis.extent for axis in anchor.axes[:-1])
    cycles = _ADDED_UP.on(hardware) * blocks / wide.lanes / hardware.fma_per_cycle
    return seconds + cycles / hardware.frequency_hz / max(1, threads)
