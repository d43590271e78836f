"""How the kernels of a function are launched, and what one block of each executes, by emulation."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tvm
import tvm_ffi

from tests.cuda_emulator.run import Counters, run_source
from tests.cuda_emulator.source import parameter_names

_BINDING = re.compile(r'T\.thread_binding\((\d+), thread="((?:block|thread)Idx\.[xyz])"')


@dataclass(frozen=True)
class Launch:
    """The size of a launch.

    Attributes:
        blocks, threads: along x, y and z.
        shared_bytes: of shared memory that the launch asks for, beside what the kernel declares.
    """

    blocks: tuple[int, ...]
    threads: tuple[int, ...]
    shared_bytes: int = 0

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
    asked = _asked_bytes(function)
    return [
        Launch(
            tuple(nest.get(f"blockIdx.{axis}", 1) for axis in "xyz"),
            tuple(nest.get(f"threadIdx.{axis}", 1) for axis in "xyz"),
            asked[number] if number < len(asked) else 0,
        )
        for number, nest in enumerate(nests)
    ]


def shared_by_launches(function: tvm.tirx.PrimFunc) -> list[tvm.tirx.Buffer]:
    """Memory of the GPU in which a kernel of a scheduled function leaves something for another one."""
    return [one for one in function.body.block.alloc_buffers if one.scope() == "global"]


def _asked_bytes(function: tvm.tirx.PrimFunc) -> list[int]:
    """Bytes of shared memory that each launch of a scheduled function asks for."""
    body = function.body.block.body
    nests = body.seq if isinstance(body, tvm.tirx.SeqStmt) else [body]
    found = []
    for nest in nests:
        sizes: list[int] = []

        def add(block: Any, sizes: list[int] = sizes) -> None:
            for one in block.alloc_buffers:
                if one.scope() == "shared.dyn":
                    sizes.append(math.prod(map(int, one.shape)) * np.dtype(str(one.dtype)).itemsize)

        tvm_ffi.structural_walk(nest, (tvm.s_tir.SBlock, add), order="post")
        found.append(sum(sizes))
    return found


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
    buffers = {str(buffer.name): buffer for buffer in (*function.params, *shared_by_launches(function))}
    arguments = []
    for name in parameter_names(source)[entry]:
        buffer = buffers[name.removesuffix("_ptr")]
        arguments.append(np.zeros([int(extent) for extent in buffer.shape], str(buffer.dtype)))
    return run_source(source, arguments, (1, 1, 1), launch.threads, folder, entry)
