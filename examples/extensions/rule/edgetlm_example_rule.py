"""A rule: elementwise tasks in one loop, some steps of it written out.

It matches before the product's own rule for such tasks, which is better: an example, not an improvement.
"""

from __future__ import annotations

from collections.abc import Mapping

from sdk.compiler import (
    CPU,
    DecisionKind,
    HardwareModel,
    Level,
    Rule,
    Sampler,
    WordClass,
    Workload,
)


class Unrolled(Rule):
    """One decision: how many steps are written out."""

    name = "unrolled"
    processor = CPU
    # Raise it when the same decisions become another program: records of other versions are not used.
    version = 1
    priority = 5
    decisions = (DecisionKind("written", Level.REGISTER, WordClass.UNROLL, interleaves=True),)

    def matches(self, workload: Workload, hardware: HardwareModel) -> bool:
        """No stage reduces or pads."""
        return all(stage.kind == "injective" for stage in workload.stages)

    def choices(self, workload: Workload, hardware: HardwareModel) -> Mapping[str, tuple[int, ...]]:
        """Powers of two that divide the number of elements."""
        points = workload.stages[-1].points
        return {"written": tuple(size for size in (1, 2, 4, 8) if points % size == 0)}

    def legal(self, workload: Workload, hardware: HardwareModel, values: Mapping[str, int]) -> bool:
        """No more steps than there are registers."""
        return values["written"] <= hardware.vector_registers

    def apply(self, sampler: Sampler, workload: Workload, hardware: HardwareModel, threads: int) -> None:
        """Inline all stages but the last, and split its loop."""
        schedule = sampler.schedule
        *inner, last = [stage.name for stage in workload.stages]
        for name in inner:
            schedule.compute_inline(schedule.get_sblock(name))
        loop = schedule.fuse(*schedule.get_loops(schedule.get_sblock(last)))
        _, steps = schedule.split(loop, [None, sampler.sample("written")])
        schedule.unroll(steps)

    def estimate_s(
        self, workload: Workload, hardware: HardwareModel, threads: int, values: Mapping[str, int]
    ) -> float:
        """A cycle for each element, and one for each turn of the loop."""
        return workload.stages[-1].points * (1.0 + 1.0 / values["written"]) / hardware.frequency_hz


RULE = Unrolled()
