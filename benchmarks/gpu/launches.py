"""How the kernels of a function are launched, and what one block of each executes, by emulation."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tvm

from tests.cuda_emulator.run import Counters, run_source
from tests.cuda_emulator.source import parameter_names

_BINDING = re.compile(r'T\.thread_binding\((\d+), thread="((?:block|thread)Idx\.[xyz])"')


@dataclass(frozen=True)
class Launch:
    """The size of a launch.

    Attributes:
        blocks, threads: along x, y and z.
    """

    blocks: tuple[int, ...]
    threads: tuple[int, ...]

    @property
    def count(self) -> int:
        """Number of thread blocks of the launch."""
        return math.prod(self.blocks)


def launches_of(function: tvm.tirx.PrimFunc) -> list[Launch]:
    """The launches of a scheduled function, in order: each begins with a loop over `blockIdx.x`."""
    nests: list[dict[str, int]] = []
    for extent, axis in _BINDING.findall(function.script()):
        if axis == "blockIdx.x":
            nests.append({})
        if nests:
            nests[-1][axis] = max(nests[-1].get(axis, 1), int(extent))
    return [
        Launch(
            *(tuple(nest.get(f"{kind}.{axis}", 1) for axis in "xyz") for kind in ("blockIdx", "threadIdx"))
        )
        for nest in nests
    ]


def first_block(
    function: tvm.tirx.PrimFunc, source: str, entry: str, launch: Launch, folder: Path
) -> Counters:
    """What the first block of a launch executes, with inputs of zeros.

    Args:
        function: scheduled; its arguments have known shapes.
        source: its CUDA C++.
        entry: the kernel's name in it.
        launch: of this kernel.
        folder: for the compiled emulation.
    """
    buffers = {str(parameter.name): parameter for parameter in function.params}
    arguments = []
    for name in parameter_names(source)[entry]:
        buffer = buffers[name.removesuffix("_ptr")]
        arguments.append(np.zeros([int(extent) for extent in buffer.shape], str(buffer.dtype)))
    return run_source(source, arguments, (1, 1, 1), launch.threads, folder, entry)
