"""Scatters: each update enters the list of its place, and each result has a thread."""

from __future__ import annotations

from collections.abc import Mapping

from host.schedules.api import GPU, DecisionKind, Decisions, Level, Rule, Sampler, WordClass
from host.schedules.cuda.multiprocessor import gpu_of
from host.schedules.cuda.scatter.cost import scatter_seconds
from host.schedules.cuda.scatter.program import put_scatter
from host.schedules.scatter import is_scatter, scatter_of
from host.schedules.workload import Workload
from targets import HardwareModel

_WARPS = (1, 2, 4, 8)
# Elements of any of the kernels: their numbers have 32 bits, with room for the last block.
_MOST_ELEMENTS = (1 << 31) - (1 << 16)


class CudaScatter(Rule):
    """Three kernels: lists are made empty and filled, then every result is computed."""

    name = "cuda_scatter"
    processor = GPU
    version = 1
    priority = 5
    traced = False
    # How long lists are depends on the indices.
    measurable = False
    decisions = (DecisionKind("warps", Level.BLOCK, WordClass.PARALLEL),)

    def matches(self, workload: Workload, hardware: HardwareModel) -> bool:
        """The function of a scatter, whose elements can be numbered in 32 bits."""
        if hardware.gpu is None or not is_scatter(workload):
            return False
        scatter = scatter_of(workload)
        return max(scatter.lists, scatter.entries, scatter.results) < _MOST_ELEMENTS

    def choices(self, workload: Workload, hardware: HardwareModel) -> Mapping[str, tuple[int, ...]]:
        """Warps of a block."""
        return {"warps": _WARPS}

    def legal(self, workload: Workload, hardware: HardwareModel, values: Decisions) -> bool:
        """Whether a block has no more threads than the GPU allows."""
        gpu = gpu_of(hardware)
        return values["warps"] * gpu.warp <= gpu.threads_per_block

    def apply(self, sampler: Sampler, workload: Workload, hardware: HardwareModel, threads: int) -> None:
        """Puts the program in the place of the function's body."""
        sampler.sample("warps")
        put_scatter(sampler.schedule, scatter_of(workload), sampler.value("warps"))

    def estimate_s(
        self, workload: Workload, hardware: HardwareModel, threads: int, values: Decisions
    ) -> float:
        """Estimated seconds of one call, see `cost`."""
        return scatter_seconds(scatter_of(workload), gpu_of(hardware), values["warps"])


RULE = CudaScatter()
