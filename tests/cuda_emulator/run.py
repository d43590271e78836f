"""Runs a scheduled function for a GPU on this machine's CPU, out of its CUDA source."""

from __future__ import annotations

import ctypes
import mmap
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tvm

from host.build import CudaKernel, compile_cuda
from tests.cuda_emulator.source import REASONS, compiled, entries, host_source, parameter_names

_AXES = ("blockIdx", "threadIdx")
# Of vectors of a GPU; and PROT_NONE.
_ALIGNED, _NO_ACCESS = 16, 0
_COUNTERS = (
    "products",
    "multiply_adds",
    "matrix_loads",
    "load_conflicts",
    "copy_conflicts",
    "accesses",
    "access_conflicts",
    "not_counted",
)


@dataclass(frozen=True)
class Counters:
    """What the warps of all blocks of a kernel executed.

    Attributes:
        products: of a warp's matrices (`mma`).
        multiply_adds: of these products.
        matrix_loads: of 8x8 matrices from shared memory (`ldmatrix`).
        load_conflicts: further passes that these take because their rows share banks.
        copy_conflicts: the same of copies into shared memory (`cp.async`).
        accesses: other loads and stores of shared memory.
        access_conflicts: further passes that these take.
        not_counted: accesses beyond what the emulation keeps between two stops of a thread.
    """

    products: int
    multiply_adds: int
    matrix_loads: int
    load_conflicts: int
    copy_conflicts: int
    accesses: int
    access_conflicts: int
    not_counted: int


@dataclass(frozen=True, eq=False)
class Emulated:
    """A run of a scheduled function.

    Attributes:
        kernel: as compiled for the GPU.
        counters: what it executed.
    """

    kernel: CudaKernel
    counters: Counters


def emulate(
    function: tvm.tirx.PrimFunc, arguments: Sequence[np.ndarray], target: tvm.target.Target, folder: Path
) -> Emulated:
    """Compiles a scheduled function and runs its source; arguments are read and written in place.

    Args:
        function: with its loops bound to blocks and threads.
        arguments: in the function's order, contiguous, of its types.
        target: of kind "cuda".
        folder: for the compiled emulation.

    Raises:
        AssertionError: the source does not compile as C++, or one of `REASONS`.
    """
    kernel = compile_cuda(function, "kernel", target)
    source = kernel.module.inspect_source("cuda")
    given = dict(zip((str(one.name) for one in function.params), arguments, strict=True))
    for buffer in function.body.block.alloc_buffers:
        if buffer.scope() == "global":
            # What one kernel leaves for another.
            poison = np.nan if np.issubdtype(np.dtype(str(buffer.dtype)), np.floating) else -1
            given[str(buffer.name)] = np.full([int(n) for n in buffer.shape], poison, str(buffer.dtype))
    launches = []
    for number, sizes in enumerate(_launches(function)):
        name = f"kernel_kernel_{number}" if number else "kernel_kernel"
        names = parameter_names(source)[name]
        blocks, threads = ([sizes.get(f"{kind}.{axis}", 1) for axis in "xyz"] for kind in _AXES)
        launches.append(Launch(name, [given[one.removesuffix("_ptr")] for one in names], blocks, threads))
    return Emulated(kernel, run_launches(source, launches, folder))


@dataclass(frozen=True)
class Launch:
    """One start of a kernel.

    Attributes:
        entry: name of the kernel.
        arguments: arrays in the order of its parameters, contiguous; read and written in place.
        blocks, threads: sizes of the grid and of a block along x, y and z.
    """

    entry: str
    arguments: Sequence[np.ndarray]
    blocks: Sequence[int]
    threads: Sequence[int]


def run_source(
    source: str,
    arguments: Sequence[np.ndarray],
    blocks: Sequence[int],
    threads: Sequence[int],
    folder: Path,
    entry: str | None = None,
) -> Counters:
    """Runs one kernel of a CUDA source.

    Args:
        source: CUDA C++ with inline PTX.
        arguments: arrays in the order of its parameters, contiguous; read and written in place.
        blocks, threads: sizes of the grid and of a block along x, y and z.
        folder: for the compiled emulation.
        entry: name of the kernel; None where there is one.

    Raises:
        AssertionError: the source does not compile as C++, or one of `REASONS`.
    """
    (name,) = entries(source) if entry is None else [entry]
    return run_launches(source, [Launch(name, arguments, blocks, threads)], folder)


def run_launches(source: str, launches: Sequence[Launch], folder: Path) -> Counters:
    """Runs kernels of a CUDA source one after the other; see `run_source`."""
    callers = []
    for name in {launch.entry for launch in launches}:
        kinds = entries(source)[name]
        passed = ", ".join(f"({kind})arguments[{n}]" for n, kind in enumerate(kinds))
        callers.append(
            f"static void call_{name}() {{ {name}({passed}); }}\n"
            f'extern "C" int emulate_{name}(void** given, const int* blocks, const int* threads) {{\n'
            f"  kernel = call_{name};\n  return run(given, blocks, threads);\n}}\n"
        )
    path = folder / f"emulated{len(list(folder.glob('emulated*.so')))}.so"
    path.write_bytes(compiled(host_source(source, "".join(callers))))
    library = ctypes.CDLL(str(path))
    for launch in launches:
        guarded = [Guarded(array) for array in launch.arguments]
        given = (ctypes.c_void_p * len(guarded))(*(one.address for one in guarded))
        sizes = ((ctypes.c_int * 3)(*launch.blocks), (ctypes.c_int * 3)(*launch.threads))
        reason = getattr(library, f"emulate_{launch.entry}")(given, *sizes)
        assert reason == 0, REASONS[reason]
        for one in guarded:
            one.take_back()
    return Counters(*[ctypes.c_long.in_dll(library, f"emulated_{name}").value for name in _COUNTERS])


class Guarded:
    """A copy of an array between two pages that nobody may use; it ends where the second one begins.

    Attributes:
        address: at which it begins, a multiple of 16 bytes.

    Args:
        array: contiguous.
    """

    def __init__(self, array: np.ndarray) -> None:
        self._array = array
        page = mmap.PAGESIZE
        size = -(-array.nbytes // _ALIGNED) * _ALIGNED
        inside = -(-max(1, size) // page) * page
        self._memory = mmap.mmap(-1, inside + 2 * page)
        self._bytes = np.frombuffer(self._memory, "uint8")[page + inside - size :][: array.nbytes]
        begin = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        for place in (begin, begin + page + inside):
            if ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(place), page, _NO_ACCESS):
                raise OSError(ctypes.get_errno(), "a page cannot be protected")
        self.address = begin + page + inside - size
        self._bytes[:] = array.reshape(-1).view("uint8")

    def take_back(self) -> None:
        """Write what is there now into the array."""
        self._array.reshape(-1).view("uint8")[:] = self._bytes


def launch_sizes(function: tvm.tirx.PrimFunc) -> dict[str, int]:
    """Blocks and threads of a scheduled function of one kernel, by axis."""
    (sizes,) = _launches(function)
    return sizes


def _launches(function: tvm.tirx.PrimFunc) -> list[dict[str, int]]:
    """Blocks and threads of each kernel of a scheduled function in order, by axis."""
    body = function.body.block.body
    parts = body.seq if isinstance(body, tvm.tirx.SeqStmt) else [body]
    found = [
        re.findall(r'T.thread_binding\((\d+), thread="((?:block|thread)Idx\.[xyz])"', part.script())
        for part in parts
    ]
    return [{axis: int(extent) for extent, axis in one} for one in found]
