"""CUDA without a GPU: cubins, their resources, and libraries of host and device code."""

from __future__ import annotations

import ctypes
import locale
from pathlib import Path

import pytest
import tvm
from tvm import s_tir, te, topi

from host.build import KernelCache, Nvrtc, build_cuda_library, compile_cuda
from host.build.cuda.default_schedule import default_schedule_gpu
from host.build.cuda.nvrtc import parse_resources
from host.build.elf import machine_of
from host.errors import BuildError

ARCHITECTURES = ("sm_72", "sm_87", "sm_90")

LOG = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'first_kernel' for 'sm_87'
ptxas info    : Function properties for first_kernel
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 62 registers, used 1 barriers, 4352 bytes smem, 376 bytes cmem[0]
ptxas info    : Compiling entry function 'second_kernel' for 'sm_87'
ptxas info    : Function properties for second_kernel
    208 bytes stack frame, 16 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 255 registers, used 0 barriers, 208 bytes cumulative stack size, 360 bytes cmem[0]
"""


def target(arch: str = "sm_87", machine: str = "aarch64") -> tvm.target.Target:
    return tvm.target.Target(
        {
            "kind": "cuda",
            "arch": arch,
            "max_threads_per_block": 1024,
            "max_shared_memory_per_block": 49152,
            "thread_warp_size": 32,
            "host": {"kind": "llvm", "mtriple": f"{machine}-linux-gnu"},
        }
    )


def scaled(factor: float, dtype: str = "float32", bound: bool = True) -> tvm.tirx.PrimFunc:
    source = te.placeholder((64,), name="source", dtype=dtype)
    scale = tvm.tirx.const(factor, dtype)
    output = te.compute((64,), lambda i: source[i] * scale, name="scaled")
    schedule = s_tir.Schedule(tvm.IRModule({"main": te.create_prim_func([source, output])}))
    if bound:
        schedule.bind(schedule.get_loops(schedule.get_sblock("scaled"))[0], "threadIdx.x")
    return schedule.mod["main"]


def test_log_of_the_assembler() -> None:
    first, second = parse_resources(LOG)
    assert (first.kernel, first.registers, first.shared_bytes) == ("first_kernel", 62, 4352)
    assert not first.spills
    assert (second.registers, second.stack_bytes, second.shared_bytes) == (255, 208, 0)
    assert (second.spill_store_bytes, second.spill_load_bytes) == (16, 24)
    assert second.spills


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_cubins(arch: str) -> None:
    kernel = compile_cuda(scaled(2.0), "double", target(arch))
    assert kernel.cubin.content[:4] == b"\x7fELF"
    # e_machine of CUDA is 190; the low byte of e_flags is the compute capability.
    assert int.from_bytes(kernel.cubin.content[18:20], "little") == 190
    assert kernel.cubin.content[48] == int(arch.removeprefix("sm_"))
    (resources,) = kernel.resources
    assert resources.kernel == "double_kernel"
    assert 0 < resources.registers < 32
    assert not resources.spills
    assert machine_of(kernel.host) == "aarch64"


# What each compiler knows: JetPack 5 has CUDA 11, JetPack 6 CUDA 12, JetPack 7 CUDA 13.
MAJORS = [(11, "sm_72"), (11, "sm_87"), (12, "sm_87"), (13, "sm_87"), (13, "sm_110")]


@pytest.mark.parametrize(("major", "arch"), MAJORS)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_every_cuda_major(major: int, arch: str, dtype: str) -> None:
    codes = locale.nl_langinfo(locale.CODESET)
    kernel = compile_cuda(scaled(2.0, dtype), "double", target(arch), cuda_major=major)
    # The compiler's locale is not that of its caller, whose next file is written in UTF-8.
    assert locale.nl_langinfo(locale.CODESET) == codes != "ANSI_X3.4-1968"
    (resources,) = kernel.resources
    assert resources.registers > 0
    assert not resources.spills
    # The tool kit's version stands in a note of the cubin; the architecture in the second half of e_flags.
    assert kernel.cubin.content[:4] == b"\x7fELF"
    assert int(arch.removeprefix("sm_")) in kernel.cubin.content[48:52]


def test_majors_keep_to_what_they_know() -> None:
    with pytest.raises(BuildError, match=r"NVRTC 12\.6 for sm_110"):
        Nvrtc(12).compile("__global__ void f() {}", "sm_110")
    with pytest.raises(BuildError, match=r"NVRTC 13\.0 for sm_72"):
        Nvrtc(13).compile("__global__ void f() {}", "sm_72")


def test_function_without_a_rule_runs_stage_by_stage() -> None:
    source = te.placeholder((4, 64), name="source")
    function = te.create_prim_func([source, topi.nn.softmax(source)])
    kernel = compile_cuda(default_schedule_gpu(function, "softmax"), "softmax", target())
    assert len(kernel.resources) == 4
    assert not any(entry.spills for entry in kernel.resources)


def test_function_that_no_gpu_runs_is_named() -> None:
    source = te.placeholder((4, 64), name="source")
    function = te.create_prim_func([source, topi.cumsum(source, axis=1)])
    with pytest.raises(BuildError, match="kernel sums: it has no stages"):
        default_schedule_gpu(function, "sums")


def test_library_has_cubins_and_no_source(tmp_path: Path) -> None:
    path = tmp_path / "lib.so"
    functions = {"double": scaled(2.0), "triple": scaled(3.0)}
    kernels = build_cuda_library(functions, path, target())
    content = path.read_bytes()
    assert machine_of(content) == "aarch64"
    assert b"__global__" not in content
    assert b"threadIdx.x)" not in content
    for name, kernel in kernels.items():
        assert kernel.cubin.content in content, name


def test_library_for_this_machine_loads(tmp_path: Path) -> None:
    path = tmp_path / "lib.so"
    build_cuda_library({"double": scaled(2.0)}, path, target(machine="x86_64"))
    module = tvm.runtime.load_module(str(path))
    assert module.implements_function("double")
    assert [part.kind for part in module.imports] == ["cuda"]


def test_cache_holds_cubins_with_their_resources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = KernelCache(tmp_path / "kernels")
    first = compile_cuda(scaled(2.0), "double", target(), cache)

    def refuse(self: Nvrtc, source: str, arch: str) -> None:
        raise BuildError(f"compiled again for {arch}")

    monkeypatch.setattr(Nvrtc, "compile", refuse)
    assert compile_cuda(scaled(2.0), "double", target(), cache).cubin == first.cubin
    with pytest.raises(BuildError, match="compiled again for sm_72"):
        compile_cuda(scaled(2.0), "double", target("sm_72"), cache)


def test_refused_source_names_the_error() -> None:
    with pytest.raises(BuildError, match=r"NVRTC 12\.6 for sm_87: .*undefined_thing"):
        Nvrtc().compile("__global__ void f(float* x) { x[0] = undefined_thing; }", "sm_87")
    with pytest.raises(BuildError, match="sm_12"):
        Nvrtc().compile("__global__ void f() {}", "sm_12")


def test_spills_are_seen() -> None:
    # 128 sums that live through the whole loop, in 32 registers.
    source = """
extern "C" __global__ void __launch_bounds__(1024, 2) f(float* x, int n) {
  float sums[128];
  #pragma unroll
  for (int i = 0; i < 128; ++i) sums[i] = 0.0f;
  for (int k = 0; k < n; ++k) {
    #pragma unroll
    for (int i = 0; i < 128; ++i) sums[i] += x[k * 128 + i + threadIdx.x];
  }
  #pragma unroll
  for (int i = 0; i < 128; ++i) x[i * 1024 + threadIdx.x] = sums[i];
}
"""
    (resources,) = Nvrtc().compile(source, "sm_87").resources
    assert resources.spills
    assert resources.stack_bytes > 0


def test_missing_compiler_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("host.build.cuda.nvrtc.package_folders", lambda: (tmp_path,))
    with pytest.raises(BuildError, match="install the package nvidia-cuda-nvrtc-cu11"):
        Nvrtc(11)
    with pytest.raises(BuildError, match="no compiler for CUDA 9"):
        Nvrtc(9)


def test_unbound_function_is_refused() -> None:
    with pytest.raises(BuildError, match="kernel plain: "):
        compile_cuda(scaled(2.0, bound=False), "plain", target())


def test_runtime_without_a_device() -> None:
    compile_cuda(scaled(2.0), "double", target())
    # Either a real driver is here, or its stand-in says that there is no device.
    device = tvm.cuda(0)
    count = ctypes.CDLL("libcuda.so.1").cuDeviceGetName
    assert device.exist or count(0, 0, 0) == 100
