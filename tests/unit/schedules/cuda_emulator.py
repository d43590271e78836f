"""Runs generated CUDA source on the CPU: the threads of a block as coroutines, one block after the other.

Threads stop at barriers and at exchanges within a warp and nowhere else, in the order of their numbers. So a
barrier that is missing, or one that part of a block does not reach, gives wrong numbers here too.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tvm

from host.build import CudaKernel, compile_cuda
from host.build.linker import zig_executable

SHIM = r"""
#define __CUDACC_VER_MAJOR__ 12
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#define __global__
#define __device__
#define __host__
#define __align__(size) alignas(size)
#define __forceinline__ inline
#define __launch_bounds__(...)
struct int3d { int x, y, z; };
#define VECTORS(name, type) \
  struct alignas(2 * sizeof(type)) name##2 { type x, y; }; \
  struct alignas(sizeof(type) < 8 ? 4 * sizeof(type) : 16) name##4 { type x, y, z, w; }; \
  static inline name##2 make_##name##2(type a, type b) { return {a, b}; } \
  static inline name##4 make_##name##4(type a, type b, type c, type d) { return {a, b, c, d}; }
typedef _Float16 half;
typedef half __half;
static inline half __float2half_rn(float v) { return (half)v; }
static inline float __half2float(half v) { return (float)v; }
static inline half __float2half(float v) { return (half)v; }
static inline bool __hgt(half a, half b) { return a > b; }
static inline bool __hlt(half a, half b) { return a < b; }
struct alignas(4) half2 { half x, y; };
typedef half2 __half2;
static inline half2 make_half2(half a, half b) { return {a, b}; }
VECTORS(float, float)
VECTORS(int, int)
VECTORS(uint, uint32_t)
VECTORS(short, int16_t)
VECTORS(ushort, uint16_t)
VECTORS(char, int8_t)
VECTORS(uchar, uint8_t)
VECTORS(longlong, int64_t)
VECTORS(ulonglong, uint64_t)
static inline float max(float a, float b) { return a > b ? a : b; }
static inline float min(float a, float b) { return a < b ? a : b; }
static inline int max(int a, int b) { return a > b ? a : b; }
static inline int min(int a, int b) { return a < b ? a : b; }
static inline float emulated_rsqrtf(float v) { return 1.0f / sqrtf(v); }
#define rsqrtf emulated_rsqrtf
static inline float __int_as_float(int v) { float f; memcpy(&f, &v, 4); return f; }
enum { READY, SYNC, EXCHANGE, DONE };
struct Thread { ucontext_t context; int3d index; int state; float value; int source; };
static Thread threads_of_block[1024];
static ucontext_t scheduler_context;
static int current_thread, count_of_threads;
static int3d blockIdx;
#define threadIdx (threads_of_block[current_thread].index)
static void leave(int state) {
  threads_of_block[current_thread].state = state;
  swapcontext(&threads_of_block[current_thread].context, &scheduler_context);
}
static inline void __syncthreads() { leave(SYNC); }
static inline unsigned __activemask() { return ~0u; }
static float exchange(float value, int lane) {
  Thread& own = threads_of_block[current_thread];
  own.value = value;
  own.source = lane < 0 || lane > 31 ? current_thread : current_thread / 32 * 32 + lane;
  leave(EXCHANGE);
  return threads_of_block[current_thread].value;
}
static inline float __shfl_down_sync(unsigned, float v, int d, int = 32) {
  return exchange(v, current_thread % 32 + d);
}
static inline float __shfl_up_sync(unsigned, float v, int d, int = 32) {
  return exchange(v, current_thread % 32 - d);
}
static inline float __shfl_sync(unsigned, float v, int lane, int = 32) { return exchange(v, lane); }
"""

# After the kernels: what runs the one that `kernel` calls.
RUN_THREADS = r"""
static void** arguments;
static void (*kernel)();
static void enter() {
  kernel();
  threads_of_block[current_thread].state = DONE;
}
static char stacks[1024][1 << 16];
// Lets every thread run that can, until all are done. 1: part of the block waits where the rest never comes.
static int run_block() {
  for (int t = 0; t < count_of_threads; ++t) {
    Thread& thread = threads_of_block[t];
    getcontext(&thread.context);
    thread.context.uc_stack.ss_sp = stacks[t];
    thread.context.uc_stack.ss_size = sizeof(stacks[t]);
    thread.context.uc_link = &scheduler_context;
    makecontext(&thread.context, enter, 0);
    thread.state = READY;
  }
  for (;;) {
    int done = 0, waiting = 0, exchanging = 0;
    for (current_thread = 0; current_thread < count_of_threads; ++current_thread) {
      Thread& thread = threads_of_block[current_thread];
      if (thread.state == READY) swapcontext(&scheduler_context, &thread.context);
      done += thread.state == DONE;
      waiting += thread.state == SYNC;
      exchanging += thread.state == EXCHANGE;
    }
    if (done == count_of_threads) return 0;
    if (exchanging) {
      static float seen[1024];
      for (int t = 0; t < count_of_threads; ++t) {
        Thread& from = threads_of_block[threads_of_block[t].source];
        seen[t] = from.state == EXCHANGE ? from.value : threads_of_block[t].value;
      }
      for (int t = 0; t < count_of_threads; ++t)
        if (threads_of_block[t].state == EXCHANGE) {
          threads_of_block[t].value = seen[t];
          threads_of_block[t].state = READY;
        }
    } else {
      if (waiting + done != count_of_threads || (done && waiting)) return 1;
      for (int t = 0; t < count_of_threads; ++t) threads_of_block[t].state = READY;
    }
  }
}
static int run(void** given, const int* blocks, const int* threads) {
  arguments = given;
  count_of_threads = threads[0] * threads[1] * threads[2];
  for (int t = 0; t < count_of_threads; ++t)
    threads_of_block[t].index = {t % threads[0], t / threads[0] % threads[1], t / threads[0] / threads[1]};
  for (blockIdx.z = 0; blockIdx.z < blocks[2]; ++blockIdx.z)
    for (blockIdx.y = 0; blockIdx.y < blocks[1]; ++blockIdx.y)
      for (blockIdx.x = 0; blockIdx.x < blocks[0]; ++blockIdx.x)
        if (run_block()) return 1;
  return 0;
}
"""


def emulate(
    function: tvm.tirx.PrimFunc, arguments: Sequence[np.ndarray], target: tvm.target.Target, folder: Path
) -> CudaKernel:
    """Compiles a scheduled function and runs its source; arguments are read and written in place.

    Args:
        function: with its loops bound to blocks and threads.
        arguments: in the function's order, contiguous, fp32.
        target: of kind "cuda".
        folder: for the compiled emulation.

    Raises:
        AssertionError: the source does not compile as C++, or a barrier is not reached by all threads.
    """
    compiled = compile_cuda(function, "kernel", target)
    source = compiled.module.inspect_source("cuda")
    found = re.search(r'extern "C" __global__ void [^;{]*?(\w+)\(([^()]*)\) \{', source)
    assert found is not None, "one kernel, and its parameters"
    names = [str(parameter.name) for parameter in function.params]
    order = [names.index(text.split()[-1].removesuffix("_ptr")) for text in found[2].split(",")]
    passed = ", ".join(f"(float*)arguments[{position}]" for position in order)
    # Blocks run one after the other, so what the threads of a block share can be static.
    source = re.sub(r"__shared__ (alignas\(\d+\))?", r"\1 static ", source)
    entry = (
        f"static void call() {{ {found[1]}({passed}); }}\n"
        'extern "C" int emulate(void** given, const int* blocks, const int* threads) {\n'
        "  kernel = call;\n  return run(given, blocks, threads);\n}\n"
    )
    text = "\n".join((SHIM, source, RUN_THREADS, entry))
    run = ctypes.CDLL(str(_compile(text, folder))).emulate
    pointers = (ctypes.c_void_p * len(arguments))(*[array.ctypes.data for array in arguments])
    sizes = launch_sizes(function)
    blocks = (ctypes.c_int * 3)(*[sizes.get(f"blockIdx.{axis}", 1) for axis in "xyz"])
    threads = (ctypes.c_int * 3)(*[sizes.get(f"threadIdx.{axis}", 1) for axis in "xyz"])
    assert run(pointers, blocks, threads) == 0, "a barrier is not reached by all threads"
    return compiled


def launch_sizes(function: tvm.tirx.PrimFunc) -> dict[str, int]:
    """Blocks and threads of a scheduled function, by axis."""
    found = re.findall(r'T.thread_binding\((\d+), thread="((?:block|thread)Idx\.[xyz])"', function.script())
    return {axis: int(extent) for extent, axis in found}


def _compile(text: str, folder: Path) -> Path:
    number = len(list(folder.glob("emulated*.cc")))
    source, output = folder / f"emulated{number}.cc", folder / f"emulated{number}.so"
    source.write_text(text)
    for name in ("cstdint", "type_traits", "cuda.h"):
        (folder / name).write_text("")
    command = [str(zig_executable()), "cc", "-x", "c++", "-std=c++17", "-shared", "-fPIC", "-O1", "-w"]
    command += ["-fno-sanitize=all", "-nostdinc++", "-nostdlib++", "-I", str(folder)]
    done = subprocess.run(
        [*command, "-o", str(output), str(source), "-lm"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[:2000]
    return output
