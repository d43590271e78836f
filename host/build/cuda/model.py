"""The functions of a lowered model to kernels for a GPU."""

from __future__ import annotations

from collections.abc import Mapping

import tvm

from host.build.cache import KernelCache
from host.build.cuda.default_schedule import default_schedule_gpu
from host.build.cuda.library import CudaKernel, compile_cuda
from host.build.threads import Progress, compiled_with_defaults


def build_cuda_kernels(
    functions: Mapping[str, tvm.tirx.PrimFunc],
    kernels: Mapping[str, tvm.tirx.PrimFunc],
    target: tvm.target.Target,
    progress: Progress | None,
    cache: KernelCache | None,
    workers: int | None,
    cuda_major: int,
) -> tuple[dict[str, CudaKernel], dict[str, str]]:
    """Compile every function in threads: the compiler of CUDA works outside of the interpreter lock.

    Args:
        functions: unscheduled, by name.
        kernels: scheduled ones of them; the rest, and those that do not compile, get a default schedule.
        target: of kind "cuda".
        progress: receives the number of kernels that are done.
        cache: where cubins are looked up first.
        workers: threads that compile; the machine's usable cores if None.
        cuda_major: CUDA major version of the board's driver.

    Returns:
        The kernels by name, and the reasons why given schedules were not used.

    Raises:
        BuildError: a function does not even compile with a default schedule.
    """

    def given(name: str) -> CudaKernel:
        return compile_cuda(kernels[name], name, target, cache, cuda_major)

    def default(name: str) -> CudaKernel:
        return compile_cuda(default_schedule_gpu(functions[name], name), name, target, cache, cuda_major)

    return compiled_with_defaults(functions, kernels, given, default, progress, workers)
