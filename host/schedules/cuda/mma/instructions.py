"""Calls of the instructions of tensor cores, as functions of CUDA C++ around one statement of PTX each.

PTX ISA 8.5: "cp.async", "ldmatrix", "Matrix Fragments for mma.m16n8k16 with floating point type". Addresses
in shared memory are a pool with an offset in bytes; registers are an array with the number of the first.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.backend.cuda.op import cuda_func_call

_HEAD = "static __device__ __forceinline__ void"
_SHARED = "static_cast<unsigned int>(__cvta_generic_to_shared(static_cast<const char*>(pool) + offset))"


def copy_async(pool: Any, offset: Any, source: Any, size: int, wanted: Any) -> tirx.Stmt:
    """Copies `size` bytes (4, 8 or 16) from global into shared memory; zeros behind the first `wanted`."""
    # Whole chunks pass by the first-level cache.
    cache = "cg" if size == 16 else "ca"
    name = f"edgetlm_copy_async_{size}"
    text = f"""{_HEAD} {name}(void* pool, int offset, const void* source, int wanted) {{
  unsigned int address = {_SHARED};
  asm volatile("cp.async.{cache}.shared.global [%0], [%1], {size}, %2;\\n"
               :: "r"(address), "l"(source), "r"(wanted));
}}
"""
    return _call(name, text, pool, offset, source, wanted)


def commit() -> tirx.Stmt:
    """Makes one group of the copies since the last one."""
    name = "edgetlm_commit"
    return _call(name, f'{_HEAD} {name}() {{\n  asm volatile("cp.async.commit_group;\\n" ::);\n}}\n')


def wait(groups: int) -> tirx.Stmt:
    """Waits until at most so many of the thread's latest groups of copies are on their way."""
    name = f"edgetlm_wait_{groups}"
    return _call(name, f'{_HEAD} {name}() {{\n  asm volatile("cp.async.wait_group {groups};\\n" ::);\n}}\n')


def load_matrices(words: Any, first: Any, pool: Any, offset: Any, transposed: bool) -> tirx.Stmt:
    """Loads four matrices of 8 x 8 halves; each lane gives the address of one row of one."""
    name, kind = ("edgetlm_load_transposed", ".trans") if transposed else ("edgetlm_load", "")
    outputs = ", ".join(f'"=r"(words[first + {number}])' for number in range(4))
    text = f"""{_HEAD} {name}(unsigned int* words, int first, const void* pool, int offset) {{
  unsigned int address = {_SHARED};
  asm volatile("ldmatrix.sync.aligned.m8n8.x4{kind}.shared.b16 {{%0, %1, %2, %3}}, [%4];\\n"
               : {outputs}
               : "r"(address));
}}
"""
    return _call(name, text, words, first, pool, offset)


def multiply_add(sums: Any, total: Any, left: Any, first: Any, right: Any, second: Any) -> tirx.Stmt:
    """Adds the product of 16 x 16 and 16 x 8 halves to 16 x 8 sums in single precision."""
    name = "edgetlm_multiply_add"
    outputs = ", ".join(f'"=f"(sums[total + {number}])' for number in range(4))
    inputs = [f'"r"(left[first + {number}])' for number in range(4)]
    inputs += [f'"r"(right[second + {number}])' for number in range(2)]
    inputs += [f'"f"(sums[total + {number}])' for number in range(4)]
    words = "const unsigned int* left, int first, const unsigned int* right, int second"
    registers = "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13}"
    text = f"""{_HEAD} {name}(float* sums, int total, {words}) {{
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {registers};\\n"
               : {outputs}
               : {", ".join(inputs)});
}}
"""
    return _call(name, text, sums, total, left, first, right, second)


def store_chunk(pool: Any, offset: Any, halves: Any) -> tirx.Stmt:
    """Stores a chunk of halves that lie in registers."""
    name = "edgetlm_store_chunk"
    words = ", ".join(
        f"__half_as_ushort(halves[{2 * n}]) | (unsigned int)__half_as_ushort(halves[{2 * n + 1}]) << 16"
        for n in range(4)
    )
    text = f"""{_HEAD} {name}(void* pool, int offset, const half* halves) {{
  *reinterpret_cast<uint4*>(static_cast<char*>(pool) + offset) =
      make_uint4({words});
}}
"""
    return _call(name, text, pool, offset, halves)


def store_sums(pool: Any, offset: Any, lower: int, sums: Any, first: Any) -> tirx.Stmt:
    """Stores a lane's sums of one product: a pair of its row, and `lower` bytes behind one 8 rows below."""
    name = "edgetlm_store_sums"
    text = f"""{_HEAD} {name}(void* pool, int offset, int lower, const float* sums, int first) {{
  char* place = static_cast<char*>(pool) + offset;
  *reinterpret_cast<float2*>(place) = make_float2(sums[first], sums[first + 1]);
  *reinterpret_cast<float2*>(place + lower) = make_float2(sums[first + 2], sums[first + 3]);
}}
"""
    return _call(name, text, pool, offset, lower, sums, first)


def load_sums(values: Any, pool: Any, offset: Any, more: bool) -> tirx.Stmt:
    """Loads four neighbouring sums, or with `more` adds four of another slice."""
    name, sign = ("edgetlm_add_sums", "+=") if more else ("edgetlm_load_sums", "=")
    parts = "\n".join(f"  sums[{n}] {sign} four.{part};" for n, part in enumerate("xyzw"))
    # TVM makes an array that it reads by vectors one of vectors.
    text = f"""{_HEAD} {name}(void* values, const void* pool, int offset) {{
  float* sums = static_cast<float*>(values);
  const float4 four = *reinterpret_cast<const float4*>(static_cast<const char*>(pool) + offset);
{parts}
}}
"""
    return _call(name, text, values, pool, offset)


def warp_barrier() -> tirx.Stmt:
    """Waits for the warp; what its lanes have stored is seen by all of them then."""
    name = "edgetlm_warp_barrier"
    return _call(name, f"{_HEAD} {name}() {{\n  __syncwarp();\n}}\n")


def block_barrier() -> tirx.Stmt:
    """Waits for the block; what its threads have stored is seen by all of them then."""
    return tirx.Evaluate(tirx.op.tvm_storage_sync("shared"))


def _call(name: str, text: str, *arguments: Any) -> tirx.Stmt:
    return tirx.Evaluate(cuda_func_call(name, *arguments, source_code=text))
