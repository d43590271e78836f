"""Functions whose steps are algorithms of several statements: threads share the steps.

What a step does is written by its operation (`host.lowering.ops.sequential`), which says about how many
operations a processor takes for an element of one of the arguments (`host.lowering.script.step_text`).
"""

from __future__ import annotations

from collections.abc import Mapping

from host.lowering.script import OPERATIONS
from host.schedules.api import CPU, Decisions, Rule, Sampler
from host.schedules.constants import EstimateConstant
from host.schedules.cpu.common import fuse_parallel
from host.schedules.cpu.streams import shared_seconds
from host.schedules.workload import Stage, Workload
from targets import HardwareModel

# Operations of a step that a core starts in a cycle: most depend on the one before, or on what was compared.
_PER_CYCLE = EstimateConstant("steps.operations_per_cycle", 1.0)


class Steps(Rule):
    """The function as it is written, each of its blocks in parallel steps."""

    name = "steps"
    processor = CPU
    version = 1
    # Behind all rules that know what a block does.
    priority = 60
    # How long a step takes depends on the numbers that it finds.
    measurable = False
    constants = (_PER_CYCLE,)
    decisions = ()

    def matches(self, workload: Workload, hardware: HardwareModel) -> bool:
        """Whether every block says how long one of its steps takes."""
        return all(stage.kind == "whole" and OPERATIONS in dict(stage.stated) for stage in workload.stages)

    def choices(self, workload: Workload, hardware: HardwareModel) -> Mapping[str, tuple[int, ...]]:
        """None: only the number of threads is decided."""
        return {}

    def legal(self, workload: Workload, hardware: HardwareModel, values: Decisions) -> bool:
        """Any number of threads."""
        return True

    def apply(self, sampler: Sampler, workload: Workload, hardware: HardwareModel, threads: int) -> None:
        """Fuses the outer loops of each block until all threads have steps."""
        schedule = sampler.schedule
        for stage in workload.stages:
            loops = schedule.get_loops(schedule.get_sblock(stage.name))
            fuse_parallel(schedule, loops, [axis.extent for axis in stage.axes], threads)

    def estimate_s(
        self, workload: Workload, hardware: HardwareModel, threads: int, values: Decisions
    ) -> float:
        """Operations of all steps; threads that the last steps leave without any wait."""
        return sum(_seconds(stage, hardware, threads) for stage in workload.stages)


def _seconds(stage: Stage, hardware: HardwareModel, threads: int) -> float:
    name, operations = dict(stage.stated)[OPERATIONS].split()
    elements = next(one.elements for one in (*stage.reads, stage.write) if one.buffer == name)
    cycles = elements * float(operations) / _PER_CYCLE.on(hardware)
    uneven = -(-stage.points // threads) * threads / stage.points
    return shared_seconds(cycles * uneven / hardware.frequency_hz, hardware, threads)


RULE = Steps()
