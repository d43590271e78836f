"""Elements at computed places on a GPU: images of another resolution, rows of a table by number.

Where an element is read is computed in floating point, or is data, so that no schedule sees how memory goes
on. Along the last axis it does: a thread takes `vector` neighbours there, and computes their place once.
"""

from __future__ import annotations

from collections.abc import Mapping

from host.schedules.api import GPU, DecisionKind, Decisions, Level, Rule, Sampler, WordClass
from host.schedules.cpu.common import inline_chain
from host.schedules.cuda.gather.cost import cuda_gather_seconds
from host.schedules.cuda.gather.places import vector_of
from host.schedules.cuda.gather.program import Threads
from host.schedules.cuda.multiprocessor import gpu_of
from host.schedules.workload import Workload
from targets import HardwareModel


class CudaGather(Rule):
    """Every thread has neighbours along the last axis."""

    name = "cuda_gather"
    processor = GPU
    version = 1
    # Before `cuda_injective`, which takes these one by one.
    priority = 25
    traced = False
    decisions = (
        DecisionKind("threads", Level.BLOCK, WordClass.PARALLEL),
        DecisionKind("vector", Level.BLOCK, WordClass.TILE),
    )

    def matches(self, workload: Workload, hardware: HardwareModel) -> bool:
        """Whether elements at computed places have neighbours side by side."""
        return hardware.gpu is not None and vector_of(workload) > 1

    def choices(self, workload: Workload, hardware: HardwareModel) -> Mapping[str, tuple[int, ...]]:
        """Threads of a block, and elements of a thread, at most 16 bytes."""
        longest = vector_of(workload)
        vectors = tuple(size for size in (1, 2, 4, 8) if size <= longest)
        return {"threads": (32, 64, 128, 256, 512), "vector": vectors}

    def legal(self, workload: Workload, hardware: HardwareModel, values: Decisions) -> bool:
        """Whether a block has no more threads than the GPU allows."""
        return values["threads"] <= gpu_of(hardware).threads_per_block

    def apply(self, sampler: Sampler, workload: Workload, hardware: HardwareModel, threads: int) -> None:
        """Puts the nest of blocks and threads in the place of the function's body, producers inlined."""
        schedule = sampler.schedule
        (name,) = inline_chain(schedule, [stage.name for stage in workload.stages])
        for kind in self.decisions:
            sampler.sample(kind.name)
        block = schedule.get(schedule.get_sblock(name))
        Threads(sampler.value("vector"), sampler.value("threads")).put_into(schedule, block)

    def estimate_s(
        self, workload: Workload, hardware: HardwareModel, threads: int, values: Decisions
    ) -> float:
        """Estimated seconds of one call, see `cost`."""
        return cuda_gather_seconds(workload, gpu_of(hardware), values)


RULE = CudaGather()
