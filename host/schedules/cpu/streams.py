"""Estimated time of stages that walk through their buffers once."""

from __future__ import annotations

from host.schedules.constants import EstimateConstant
from host.schedules.workload import Stage
from targets import HardwareModel

# Vector operations that a core starts in a cycle.
OPERATIONS_PER_CYCLE = EstimateConstant("streams.operations_per_cycle", 2.0)
# What each vector beside another hides of the latency.
_HIDDEN = EstimateConstant("streams.hidden", 0.05)

CONSTANTS = (OPERATIONS_PER_CYCLE, _HIDDEN)


def elementwise_cycles(stage: Stage, hardware: HardwareModel, vectors: int = 1) -> float:
    """Cycles of the arithmetic of a stage that does not reduce.

    Args:
        stage: the stage.
        hardware: the processor.
        vectors: that one iteration computes; several hide a little of each other's latency.
    """
    lanes = hardware.lanes if stage.write.strides[stage.spatial[-1]] == 1 else 1
    cycles = stage.points / lanes * max(1.0, stage.flops_per_point / OPERATIONS_PER_CYCLE.on(hardware))
    return cycles / (1.0 + _HIDDEN.on(hardware) * min(vectors, 4))


def stage_seconds(stage: Stage, hardware: HardwareModel, cycles: float) -> float:
    """Seconds of a stage: its arithmetic, or the transfer of the buffer that takes longest.

    Args:
        stage: the stage.
        hardware: the processor.
        cycles: of its arithmetic.
    """
    seconds = cycles / hardware.frequency_hz
    for access in (*stage.reads, stage.write):
        size = min(access.elements, stage.points) * access.element_bytes
        level = hardware.level_of(size)
        wasted = 1.0
        last = access.strides[len(stage.axes) - 1]
        if abs(last) > 1:
            wasted = min(level.line_bytes / access.element_bytes, abs(last))
        seconds = max(seconds, size * wasted / level.bandwidth_bytes_per_s)
    return seconds


def shared_seconds(seconds: float, hardware: HardwareModel, threads: int) -> float:
    """Seconds of work that threads share evenly."""
    return seconds if threads <= 1 else seconds / threads + hardware.parallel_launch_s
