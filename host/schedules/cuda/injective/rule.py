"""Stages without reductions on a GPU: every element a thread, neighbours in vectors where memory allows."""

from __future__ import annotations

from collections.abc import Mapping

from host.schedules.api import GPU, DecisionKind, Decisions, Level, Rule, Sampler, WordClass
from host.schedules.cpu.common import inline_chain
from host.schedules.cuda.common import bind_flat
from host.schedules.cuda.injective.cost import cuda_injective_seconds
from host.schedules.cuda.multiprocessor import gpu_of
from host.schedules.workload import Stage, Workload
from targets import HardwareModel


class CudaInjective(Rule):
    """Every output is one flat loop over blocks and threads."""

    name = "cuda_injective"
    processor = GPU
    version = 4
    priority = 30
    decisions = (
        DecisionKind("threads", Level.BLOCK, WordClass.PARALLEL),
        DecisionKind("vector", Level.BLOCK, WordClass.TILE),
    )

    def matches(self, workload: Workload, hardware: HardwareModel) -> bool:
        """Whether no stage of the task reduces and the hardware has a GPU."""
        plain = all(stage.kind in ("injective", "padding") for stage in workload.stages)
        return plain and hardware.gpu is not None

    def choices(self, workload: Workload, hardware: HardwareModel) -> Mapping[str, tuple[int, ...]]:
        """Threads of a block, and elements of one thread."""
        width = _width(workload)
        return {
            "threads": (32, 64, 128, 256, 512, 1024),
            "vector": tuple(size for size in (1, 2, 4) if width % size == 0),
        }

    def legal(self, workload: Workload, hardware: HardwareModel, values: Decisions) -> bool:
        """Whether a block has no more threads than the GPU allows."""
        return values["threads"] <= gpu_of(hardware).threads_per_block

    def apply(self, sampler: Sampler, workload: Workload, hardware: HardwareModel, threads: int) -> None:
        """Inlines producers; each output is one flat loop over blocks and threads."""
        schedule = sampler.schedule
        for name in inline_chain(schedule, [stage.name for stage in workload.stages]):
            block = schedule.get_sblock(name)
            loops = schedule.get_loops(block) or [schedule.add_unit_loop(block)]
            bind_flat(schedule, list(loops), sampler.value("threads"), sampler.value("vector"))
        for name in ("threads", "vector"):
            sampler.sample(name)

    def estimate_s(
        self, workload: Workload, hardware: HardwareModel, threads: int, values: Decisions
    ) -> float:
        """Estimated seconds of one call, see `cost`."""
        return cuda_injective_seconds(workload, hardware, values)


def _width(workload: Workload) -> int:
    """Elements along the innermost axis that one thread may take together: what divides every output's."""
    outputs = [stage for stage in workload.stages if stage.write.argument]
    width = 4
    for stage in outputs:
        last = stage.axes[-1].extent if stage.axes else 1
        while last % width:
            width //= 2
    straight = all(_straight(stage) and not _holds_bytes(stage) for stage in workload.stages)
    return width if straight else 1


def _holds_bytes(stage: Stage) -> bool:
    """Whether it reads or writes bytes in memory: TVM takes two for each element of a vector of booleans."""
    return any(a.argument and a.element_bytes == 1 for a in (*stage.reads, stage.write))


def _straight(stage: Stage) -> bool:
    """Whether neighbours along the last axis are neighbours in every buffer, or the same element."""
    accesses = (*stage.reads, stage.write)
    return bool(stage.axes) and all(a.strides[-1] in (0, 1) and not a.data_dependent for a in accesses)


RULE = CudaInjective()
