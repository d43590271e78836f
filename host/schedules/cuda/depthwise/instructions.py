"""Calls of what a thread does with neighbouring channels, as functions of CUDA C++.

Four bytes, or two halves, lie in a register. PTX ISA 8.5: "fma" of f16x2, "prmt", "dp4a". Registers are an
array with the number of the first.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from host.schedules.cuda.nest import call

_HEAD = "static __device__ __forceinline__ void"
_VECTORS = {1: "unsigned int", 2: "uint2", 4: "uint4"}
_PARTS = {1: ("",), 2: (".x", ".y"), 4: (".x", ".y", ".z", ".w")}


def load(words: Any, first: int, count: int, source: Any, inside: Any, fill: int) -> tirx.Stmt:
    """Loads 4, 8 or 16 bytes from memory at once, or bytes of the number `fill` where nothing is there.

    Args:
        words: registers.
        first: of them.
        count: of registers.
        source: address.
        inside: whether it is read; None where it always is.
        fill: of all bytes; zero for halves.
    """
    name, kind = f"edgetlm_load_words_{count}", _VECTORS[count]
    lines = "\n".join(f"  words[first + {n}] = found{part};" for n, part in enumerate(_PARTS[count]))
    text = f"""{_HEAD} {name}(unsigned int* words, int first, const void* source) {{
  const {kind} found = *static_cast<const {kind}*>(source);
{lines}
}}
"""
    loaded = call(name, text, words, first, source)
    if inside is None:
        return loaded
    return tirx.IfThenElse(inside, loaded, set_words(words, first, count, (fill & 0xFF) * 0x01010101))


def set_words(words: Any, first: int, count: int, value: int) -> tirx.Stmt:
    """Sets registers to a number."""
    name = f"edgetlm_set_words_{count}"
    lines = "\n".join(f"  words[first + {n}] = value;" for n in range(count))
    text = f"{_HEAD} {name}(unsigned int* words, int first, unsigned int value) {{\n{lines}\n}}\n"
    return call(name, text, words, first, tirx.const(value, "uint32"))


def multiply_halves(sums: Any, total: int, left: Any, first: int, right: Any, second: int, count: int) -> Any:
    """Adds the products of pairs of halves to pairs of halves, each rounded once."""
    name = f"edgetlm_multiply_halves_{count}"
    lines = "\n".join(
        f'  asm("fma.rn.f16x2 %0, %1, %2, %3;\\n" : "=r"(sums[total + {n}])'
        f' : "r"(left[first + {n}]), "r"(right[second + {n}]), "r"(sums[total + {n}]));'
        for n in range(count)
    )
    operands = "const unsigned int* left, int first, const unsigned int* right, int second"
    text = f"{_HEAD} {name}(unsigned int* sums, int total, {operands}) {{\n{lines}\n}}\n"
    return call(name, text, sums, total, left, first, right, second)


def _half(word: str, part: int) -> str:
    shifted = f"{word} >> 16" if part else word
    return f"__half2float(__ushort_as_half((unsigned short)({shifted})))"


def multiply_single(sums: Any, total: int, left: Any, first: int, right: Any, second: int, count: int) -> Any:
    """Adds the products of halves to sums in single precision."""
    name = f"edgetlm_multiply_single_{count}"
    lines = "\n".join(
        f"  sums[total + {2 * n + part}] += "
        f"{_half(f'left[first + {n}]', part)} * {_half(f'right[second + {n}]', part)};"
        for n in range(count)
        for part in range(2)
    )
    operands = "const unsigned int* left, int first, const unsigned int* right, int second"
    text = f"{_HEAD} {name}(float* sums, int total, {operands}) {{\n{lines}\n}}\n"
    return call(name, text, sums, total, left, first, right, second)


def add_halves(sums: Any, total: int, words: Any, first: int, count: int) -> Any:
    """Adds pairs of halves to sums in single precision."""
    name = f"edgetlm_add_halves_{count}"
    lines = "\n".join(
        f"  sums[total + {2 * n + part}] += {_half(f'words[first + {n}]', part)};"
        for n in range(count)
        for part in range(2)
    )
    text = f"{_HEAD} {name}(float* sums, int total, const unsigned int* words, int first) {{\n{lines}\n}}\n"
    return call(name, text, sums, total, words, first)


def turn_bytes(words: Any, first: int, step: int) -> tirx.Stmt:
    """Turns four words of four neighbours each into the four bytes of each neighbour.

    Args:
        words: registers.
        first: of them.
        step: registers from one of the four to the next; each gets the four bytes of one neighbour.
    """
    name = f"edgetlm_turn_bytes_{step}"
    given = [f"words[first + {n * step}]" for n in range(4)]

    def permuted(to: str, one: str, other: str, selector: str) -> str:
        return f'  asm("prmt.b32 %0, %1, %2, {selector};\\n" : "=r"({to}) : "r"({one}), "r"({other}));\n'

    text = f"""{_HEAD} {name}(unsigned int* words, int first) {{
  unsigned int low, high, lower, higher;
{permuted("low", given[0], given[1], "0x5140")}\
{permuted("high", given[0], given[1], "0x7362")}\
{permuted("lower", given[2], given[3], "0x5140")}\
{permuted("higher", given[2], given[3], "0x7362")}\
{permuted(given[0], "low", "lower", "0x5410")}\
{permuted(given[1], "low", "lower", "0x7632")}\
{permuted(given[2], "high", "higher", "0x5410")}\
{permuted(given[3], "high", "higher", "0x7632")}\
}}
"""
    return call(name, text, words, first)


def dot_bytes(
    sums: Any, total: int, left: Any, first: int, right: Any, second: int, step: int, signed: bool
) -> Any:
    """Adds dot products of four bytes to four sums; the right ones have a sign.

    Args:
        sums: in 32 bits.
        total: the first of them.
        left: registers of the left operand.
        first: of them.
        right: registers of the right operand.
        second: the first of them.
        step: registers from one neighbour to the next.
        signed: whether the left ones have a sign.
    """
    kind = "s32" if signed else "u32"
    name = f"edgetlm_dot_bytes_{kind}_{step}"
    lines = "\n".join(
        f'  asm("dp4a.{kind}.s32 %0, %1, %2, %3;\\n" : "=r"(sums[total + {n}])'
        f' : "r"(left[first + {n * step}]), "r"(right[second + {n * step}]), "r"(sums[total + {n}]));'
        for n in range(4)
    )
    operands = "const unsigned int* left, int first, const unsigned int* right, int second"
    text = f"{_HEAD} {name}(int* sums, int total, {operands}) {{\n{lines}\n}}\n"
    return call(name, text, sums, total, left, first, right, second)


# C++'s type of an element in a register, its bits, and the bits as a number.
_IN_REGISTERS = {
    "float32": ("float", 32, "__float_as_uint({})"),
    "int32": ("int", 32, "(unsigned int){}"),
    "float16": ("half", 16, "(unsigned int)__half_as_ushort({})"),
    "int8": ("signed char", 8, "(unsigned int)(unsigned char){}"),
    "uint8": ("unsigned char", 8, "(unsigned int){}"),
}
STORED_TYPES = frozenset(_IN_REGISTERS)


def store(target: Any, values: Any, dtype: str, count: int) -> tirx.Stmt:
    """Stores neighbouring results at once, in vectors of 16 bytes at most.

    Args:
        target: address.
        values: an array of the results in registers.
        dtype: one of `STORED_TYPES`.
        count: of results, which fill at least one register.
    """
    kind, bits, number = _IN_REGISTERS[dtype]
    each = 32 // bits
    words, name = count // each, f"edgetlm_store_{dtype}_{count}"

    def word(place: int) -> str:
        parts = (f"{number.format(f'results[{place * each + n}]')} << {n * bits}" for n in range(each))
        return " | ".join(parts)

    size = min(words, 4)
    lines = []
    for part in range(0, words, size):
        made = ", ".join(word(part + n) for n in range(size))
        value = f"make_{_VECTORS[size]}({made})" if size > 1 else made
        lines.append(f"  static_cast<{_VECTORS[size]}*>(target)[{part // size}] = {value};")
    text = f"{_HEAD} {name}(void* target, const {kind}* results) {{\n" + "\n".join(lines) + "\n}\n"
    return call(name, text, target, values)
