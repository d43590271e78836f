"""Estimated time of products of bytes."""

from __future__ import annotations

from dataclasses import replace

from host.gensor.tiled_cost import tiled_seconds
from host.space.design import Decisions, DesignSpace
from host.space.rules.dot import INSTRUCTION
from host.space.rules.dot_stage import in_lanes

# Vector operations for a vector of sums without the instruction: four products, each widened and added.
_PLAIN_OPERATIONS = 12.0


def dot_seconds(space: DesignSpace, values: Decisions) -> float:
    """Estimated seconds of one call of a program of the `dot` rule.

    The instruction starts as often as a fused multiply-add and does the work of four: in elements of four
    bytes the estimate is that of `tiled`.
    """
    hardware = space.hardware
    if values["intrinsic"] != INSTRUCTION:
        hardware = replace(hardware, fma_per_cycle=hardware.fma_per_cycle / _PLAIN_OPERATIONS)
    return tiled_seconds(replace(space, workload=in_lanes(space.workload), hardware=hardware), values)
