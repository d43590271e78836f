"""Products of halves whose sums are halves for a tile of the depth, on GPUs that add those up faster.

The rule `cuda_mma` with one more decision. GeForce GPUs of sm_86, sm_89 and sm_120 multiply halves with sums
in single precision at half the rate of sums in halves; those of data centres and Orin do not (docs/cuda.md).

A sum of 64 products beyond 65,504 is infinite in halves. A result that is stored as a half would be infinite
as well, unless a scale or products of the other sign follow; other results keep sums in single precision.
"""

from __future__ import annotations

from collections.abc import Mapping

from host.schedules.api import DecisionKind, Decisions, Level, WordClass
from host.schedules.cuda.mma.product import product_of
from host.schedules.cuda.mma.rule import CudaMma
from host.schedules.cuda.mma.tiles import tiling_of
from host.schedules.cuda.multiprocessor import gpu_of
from host.schedules.workload import Workload
from targets import HardwareModel

# Instructions whose products are added up in halves, each of 16 steps of the depth: each rounds once.
_MOST_TURNS = 4


class CudaMmaHalves(CudaMma):
    """With `single` 0, products of a tile of the depth are added up in halves, then in single precision."""

    name = "cuda_mma_halves"
    version = 2
    priority = 7
    decisions = (*CudaMma.decisions, DecisionKind("single", Level.REGISTER, WordClass.SWITCH))

    def matches(self, workload: Workload, hardware: HardwareModel) -> bool:
        """A product of halves that is stored as one, on a GPU that adds up halves faster."""
        if not super().matches(workload, hardware):
            return False
        gpu, product = gpu_of(hardware), product_of(workload)
        faster = gpu.matrix_half_sums_per_cycle > gpu.matrix_fp16_per_cycle
        if not faster or product is None or product.bytes:
            return False
        return product.result.type.name == "float16"

    def choices(self, workload: Workload, hardware: HardwareModel) -> Mapping[str, tuple[int, ...]]:
        """Those of `cuda_mma`, and the precision of sums."""
        return {**super().choices(workload, hardware), "single": (0, 1)}

    def legal(self, workload: Workload, hardware: HardwareModel, values: Decisions) -> bool:
        """Sums in halves are of few products."""
        product = product_of(workload)
        assert product is not None, "the rule matched before"
        if not values["single"] and tiling_of(product, values).turns > _MOST_TURNS:
            return False
        return super().legal(workload, hardware, values)


RULE = CudaMmaHalves()
