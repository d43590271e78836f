"""What a program does in one call: cores, multiply-adds, bytes to and from memory."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import tvm_ffi

from host.schedules.api import Decisions
from host.schedules.design import DesignSpace


@dataclass(frozen=True)
class ProgramWork:
    """What a program does in one call, by its estimate.

    Attributes:
        cores: that it keeps busy.
        multiply_adds: of one call.
        bytes: between memory and the last cache: every argument once, and what the estimate adds to that.
    """

    cores: int
    multiply_adds: float
    bytes: float

    def data(self) -> dict[str, float]:
        """As plain data."""
        return asdict(self)


def work_of(space: DesignSpace, values: Decisions) -> ProgramWork:
    """What the program of a design space with these decisions does in one call."""
    once = math.fsum(
        math.prod(int(size) for size in one.shape) * tvm_ffi.dtype(str(one.dtype)).bits / 8.0
        for one in space.task.function.params
        if hasattr(one, "shape")
    )
    memory = space.hardware.levels[-1]
    again_s = space.estimate_parts_s(values).get(memory.name, 0.0)
    return ProgramWork(
        cores=space.threads_of(values),
        multiply_adds=space.task.flops / 2.0,
        bytes=once + again_s * memory.bandwidth_bytes_per_s,
    )
