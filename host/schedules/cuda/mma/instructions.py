"""Calls of the instructions of tensor cores, as functions of CUDA C++ around one statement of PTX each.

PTX ISA 8.5: "cp.async", "ldmatrix", "Matrix Fragments for mma.m16n8k16 with floating point type" and
"Matrix Fragments for mma.m16n8k32". Addresses in shared memory are a pool with an offset in bytes; registers
are an array with the number of the first.

A matrix of bytes is loaded as one of pairs: rows of 16 bytes are what both want, and lanes get four
neighbours of a row where the fragments of bytes have them.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from host.schedules.cuda.nest import call

# PTX's names of types; C++'s of an element in a register with its bits and its number; C++'s of sums.
_PTX_TYPES = {"float16": "f16", "int8": "s8", "uint8": "u8"}
_IN_REGISTERS = {
    "float16": ("half", 16, "__half_as_ushort({})"),
    "int8": ("signed char", 8, "(unsigned char){}"),
    "uint8": ("unsigned char", 8, "{}"),
}
_SUMS = {"float32": "float", "int32": "int"}
_SUFFIXES = {"float16": "", "float32": "", "int8": "_int8", "uint8": "_uint8", "int32": "_int32"}
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
    return call(name, text, pool, offset, source, wanted)


def commit() -> tirx.Stmt:
    """Makes one group of the copies since the last one."""
    name = "edgetlm_commit"
    return call(name, f'{_HEAD} {name}() {{\n  asm volatile("cp.async.commit_group;\\n" ::);\n}}\n')


def wait(groups: int) -> tirx.Stmt:
    """Waits until at most so many of the thread's latest groups of copies are on their way."""
    name = f"edgetlm_wait_{groups}"
    return call(name, f'{_HEAD} {name}() {{\n  asm volatile("cp.async.wait_group {groups};\\n" ::);\n}}\n')


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
    return call(name, text, words, first, pool, offset)


def multiply_add(
    sums: Any, total: Any, left: Any, first: Any, right: Any, second: Any, types: tuple[str, str]
) -> tirx.Stmt:
    """Adds a product to 16 x 8 sums: of 16 x 16 and 16 x 8 halves, or of 16 x 32 and 32 x 8 bytes.

    Each operand is an array of registers with the number of the first; sums are in single precision for
    halves, in 32 bits for bytes. `types` are those of the left and the right elements.
    """
    halves = types == ("float16", "float16")
    name = "edgetlm_multiply_add" if halves else f"edgetlm_multiply_add_{'_'.join(types)}"
    element, letter, shape = ("float", "f", "m16n8k16") if halves else ("int", "r", "m16n8k32")
    sum_type = "f32" if halves else "s32"
    kinds = ".".join((sum_type, *(_PTX_TYPES[kind] for kind in types), sum_type))
    text = _product_text(name, "sums", element, letter, 4, f"{shape}.row.col.{kinds}")
    return call(name, text, sums, total, left, first, right, second)


def multiply_add_halves(halves: Any, total: Any, left: Any, first: Any, right: Any, second: Any) -> tirx.Stmt:
    """Adds a product of 16 x 16 and 16 x 8 halves to 16 x 8 sums in halves, two registers of pairs."""
    name, kinds = "edgetlm_multiply_add_halves", "m16n8k16.row.col.f16.f16.f16.f16"
    text = _product_text(name, "halves", "unsigned int", "r", 2, kinds)
    return call(name, text, halves, total, left, first, right, second)


def _product_text(name: str, sums: str, element: str, letter: str, count: int, kinds: str) -> str:
    """A function that adds a product of four registers and two to `count` registers of sums.

    Args:
        name: of the function.
        sums: name of its first parameter.
        element: type of these.
        letter: constraint of the registers that hold them.
        count: how many registers a thread has of them.
        kinds: shape, layouts and types of the instruction.
    """
    outputs = ", ".join(f'"={letter}"({sums}[total + {number}])' for number in range(count))
    inputs = [f'"r"(left[first + {number}])' for number in range(4)]
    inputs += [f'"r"(right[second + {number}])' for number in range(2)]
    inputs += [f'"{letter}"({sums}[total + {number}])' for number in range(count)]
    words = "const unsigned int* left, int first, const unsigned int* right, int second"
    places = iter(range(2 * count + 6))
    registers = ", ".join(
        "{" + ", ".join(f"%{next(places)}" for _ in range(size)) + "}" for size in (count, 4, 2, count)
    )
    return f"""{_HEAD} {name}({element}* {sums}, int total, {words}) {{
  asm volatile("mma.sync.aligned.{kinds} {registers};\\n"
               : {outputs}
               : {", ".join(inputs)});
}}
"""


def promote(sums: Any, total: Any, halves: Any, first: Any) -> tirx.Stmt:
    """Adds 16 x 8 sums in halves to those in single precision, and makes them zero."""
    lines = "\n".join(
        f"  sums[total + {2 * word + part}] += "
        f"__half2float(__ushort_as_half((unsigned short)(halves[first + {word}]{' >> 16' * part})));"
        for word in range(2)
        for part in range(2)
    )
    text = f"""{_HEAD} edgetlm_promote(float* sums, int total, unsigned int* halves, int first) {{
{lines}
  halves[first] = halves[first + 1] = 0;
}}
"""
    return call("edgetlm_promote", text, sums, total, halves, first)


def store_fill(pool: Any, offset: Any, size: int, fill: int) -> tirx.Stmt:
    """Stores `size` bytes (4, 8 or 16) of the number `fill`."""
    name = f"edgetlm_store_fill_{size}"
    kind = {4: "unsigned int", 8: "uint2", 16: "uint4"}[size]
    make = {4: "word", 8: "make_uint2(word, word)", 16: "make_uint4(word, word, word, word)"}[size]
    text = f"""{_HEAD} {name}(void* pool, int offset, unsigned int word) {{
  *reinterpret_cast<{kind}*>(static_cast<char*>(pool) + offset) = {make};
}}
"""
    return call(name, text, pool, offset, tirx.const((fill & 0xFF) * 0x01010101, "uint32"))


def load_packed(numbers: Any, source: Any, size: int) -> tirx.Stmt:
    """Loads 4 or 8 neighbouring bytes of a quantised weight into registers."""
    name = f"edgetlm_load_packed_{size}"
    kind = {4: "unsigned int", 8: "uint2"}[size]
    text = f"""{_HEAD} {name}(void* numbers, const void* source) {{
  *static_cast<{kind}*>(numbers) = *static_cast<const {kind}*>(source);
}}
"""
    return call(name, text, numbers, source)


def store_chunk(pool: Any, offset: Any, elements: Any, dtype: str) -> tirx.Stmt:
    """Stores a chunk of halves or bytes that lie in registers."""
    name = f"edgetlm_store_chunk{_SUFFIXES[dtype]}"
    element, bits, number = _IN_REGISTERS[dtype]
    each = 32 // bits

    def part(place: int) -> str:
        shifted = f"(unsigned int){number} << {place % each * bits}" if place % each else number
        return shifted.format(f"elements[{place}]")

    words = ", ".join(" | ".join(part(word * each + n) for n in range(each)) for word in range(4))
    text = f"""{_HEAD} {name}(void* pool, int offset, const {element}* elements) {{
  *reinterpret_cast<uint4*>(static_cast<char*>(pool) + offset) =
      make_uint4({words});
}}
"""
    return call(name, text, pool, offset, elements)


def store_sums(pool: Any, offset: Any, lower: int, sums: Any, first: Any, dtype: str) -> tirx.Stmt:
    """Stores a lane's sums of one product: a pair of its row, and `lower` bytes behind one 8 rows below."""
    kind = _SUMS[dtype]
    name = f"edgetlm_store_sums{_SUFFIXES[dtype]}"
    text = f"""{_HEAD} {name}(void* pool, int offset, int lower, const {kind}* sums, int first) {{
  char* place = static_cast<char*>(pool) + offset;
  *reinterpret_cast<{kind}2*>(place) = make_{kind}2(sums[first], sums[first + 1]);
  *reinterpret_cast<{kind}2*>(place + lower) = make_{kind}2(sums[first + 2], sums[first + 3]);
}}
"""
    return call(name, text, pool, offset, lower, sums, first)


def load_sums(values: Any, pool: Any, offset: Any, more: bool, dtype: str) -> tirx.Stmt:
    """Loads four neighbouring sums, or with `more` adds four of another slice."""
    kind = _SUMS[dtype]
    name, sign = ("edgetlm_add_sums", "+=") if more else ("edgetlm_load_sums", "=")
    name += _SUFFIXES[dtype]
    parts = "\n".join(f"  sums[{n}] {sign} four.{part};" for n, part in enumerate("xyzw"))
    # TVM makes an array that it reads by vectors one of vectors.
    text = f"""{_HEAD} {name}(void* values, const void* pool, int offset) {{
  {kind}* sums = static_cast<{kind}*>(values);
  const {kind}4 four = *reinterpret_cast<const {kind}4*>(static_cast<const char*>(pool) + offset);
{parts}
}}
"""
    return call(name, text, values, pool, offset)


def warp_barrier() -> tirx.Stmt:
    """Waits for the warp; what its lanes have stored is seen by all of them then."""
    name = "edgetlm_warp_barrier"
    return call(name, f"{_HEAD} {name}() {{\n  __syncwarp();\n}}\n")


def block_barrier() -> tirx.Stmt:
    """Waits for the block; what its threads have stored is seen by all of them then."""
    return tirx.Evaluate(tirx.op.tvm_storage_sync("shared"))
