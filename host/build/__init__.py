"""From scheduled functions to kernels and libraries: compile, cache, link."""

from host.build.cache import KernelCache
from host.build.cuda.library import CudaKernel, build_cuda_library, compile_cuda
from host.build.cuda.nvrtc import Cubin, Nvrtc, Resources
from host.build.default_schedule import default_schedule
from host.build.kernel import KernelObject, compile_kernel
from host.build.linker import build_kernel_library
from host.build.model import BuildStats, build_model
from host.build.model_variants import VariantLinker
from host.build.target import architecture_of, cuda_major, target_for
from host.build.threads import Progress

__all__ = [
    "BuildStats",
    "Cubin",
    "CudaKernel",
    "KernelCache",
    "KernelObject",
    "Nvrtc",
    "Progress",
    "Resources",
    "VariantLinker",
    "architecture_of",
    "build_cuda_library",
    "build_kernel_library",
    "build_model",
    "compile_cuda",
    "compile_kernel",
    "cuda_major",
    "default_schedule",
    "target_for",
]
