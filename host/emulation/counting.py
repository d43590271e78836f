"""Instructions that compiled kernels execute, counted exactly: Unicorn runs the shared library as it is.

The time that an emulator takes says nothing of a board; what its processor has to execute is the same there.
What the C library does in a kernel's name (copying and filling memory) is not counted.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from host.emulation.kernel_run import ArgumentSpec, Event, KernelRun, compiled_hooks
from host.emulation.library import SharedLibrary
from host.errors import EngineError

_HOOK = """#include <stdint.h>
void count_block(void *engine, uint64_t address, uint32_t bytes, uint64_t *total) { *total += bytes / 4; }
"""


@dataclass(frozen=True)
class KernelCall:
    """One kernel of a library as a model calls it.

    Attributes:
        name: of the function.
        arguments: shape and dtype of each.
        calls: in one run of the model.
    """

    name: str
    arguments: tuple[ArgumentSpec, ...]
    calls: int


def count_model(library: Path, kernels: Sequence[KernelCall]) -> int:
    """Instructions of one run of a model: all calls of its kernels, on one core.

    Args:
        library: for aarch64.
        kernels: every kernel that the model calls.

    Raises:
        EngineError: Unicorn is not installed, or a kernel calls something whose instructions are not known
            here.
    """
    content = library.read_bytes()
    return sum(one.calls * count_kernel(content, one.name, one.arguments) for one in kernels)


def count_kernel(content: bytes, name: str, arguments: Sequence[ArgumentSpec]) -> int:
    """Instructions of one call of a kernel with zeros.

    Args:
        content: of a shared library for aarch64.
        name: of the function.
        arguments: shape and dtype of each.

    Raises:
        EngineError: see `count_model`.
    """
    library = SharedLibrary(content)
    if library.architecture != "aarch64":
        raise EngineError("instructions are counted for libraries of aarch64 only")
    run = KernelRun(library, name)
    total = ctypes.c_uint64(0)
    run.watch(Event.BLOCK, compiled_hooks(_HOOK).count_block, total)
    run.call(run.place(arguments))
    # What stands for the runtime's own functions is one instruction each, which is none of the kernel's.
    return int(total.value)
