"""Estimated time of stages without reductions."""

from __future__ import annotations

from host.schedules.api import Decisions
from host.schedules.cpu.streams import elementwise_cycles, shared_seconds, stage_seconds
from host.schedules.workload import Workload
from targets import HardwareModel


def injective_seconds(workload: Workload, hardware: HardwareModel, threads: int, values: Decisions) -> float:
    """Estimated seconds of one call of a program of the `injective` rule."""
    total = 0.0
    for stage in workload.stages:
        cycles = elementwise_cycles(stage, hardware, values["vectors"])
        total += stage_seconds(stage, hardware, cycles, values["strip"])
    return shared_seconds(total, hardware, threads)
