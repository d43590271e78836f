"""Estimated time of reductions along rows."""

from __future__ import annotations

from host.schedules.api import Decisions
from host.schedules.cpu.streams import (
    OPERATIONS_PER_CYCLE,
    elementwise_cycles,
    shared_seconds,
    stage_seconds,
)
from host.schedules.workload import Stage, Workload
from targets import HardwareModel


def rowwise_seconds(workload: Workload, hardware: HardwareModel, threads: int, values: Decisions) -> float:
    """Estimated seconds of one call of a program of the `rowwise` rule."""
    total = 0.0
    for stage in workload.stages:
        if stage.reduction:
            cycles = _reduction_cycles(stage, hardware, values["partials"])
        else:
            cycles = elementwise_cycles(stage, hardware)
        total += stage_seconds(stage, hardware, cycles)
    return shared_seconds(total, hardware, threads)


def _reduction_cycles(stage: Stage, hardware: HardwareModel, partials: int) -> float:
    """Cycles of a reduction: a dependent chain waits for each result; several partial results hide that."""
    lanes = hardware.lanes if partials else 1
    waits = hardware.fma_latency_cycles / max(1, partials)
    return stage.points / lanes * max(waits, stage.flops_per_point / OPERATIONS_PER_CYCLE.on(hardware))
