"""Numbers of bfloat16 on x86: dot products and conversions by the processor's own instructions.

TVM's code generator has no type of LLVM for bfloat16: it stores the bits as integers, converts by integer
arithmetic, and can call no intrinsic that takes them. So both are functions in LLVM's own language, which are
imported into the module of a kernel and inlined. They take and return the bits as integers. A conversion
rounds to the nearest number, ties to even, as VCVTNEPS2BF16 does, for which subnormal numbers are zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from host.build.structural import Rule, mapped
from targets.x86_64 import BFLOAT16_FEATURE

_PREFIX = "edgetlm_bfloat16_"
# Lanes of 32 bits that the instructions take.
_LANES = (4, 8, 16)
_DOT = """
declare <{lanes} x float> @llvm.x86.avx512bf16.dpbf16ps.{bits}(
    <{lanes} x float>, <{elements} x bfloat>, <{elements} x bfloat>)

define <{lanes} x float> @{name}(<{lanes} x float> %sums, <{lanes} x i32> %left, <{lanes} x i32> %right) {{
  %a = bitcast <{lanes} x i32> %left to <{elements} x bfloat>
  %b = bitcast <{lanes} x i32> %right to <{elements} x bfloat>
  %c = call <{lanes} x float> @llvm.x86.avx512bf16.dpbf16ps.{bits}(
      <{lanes} x float> %sums, <{elements} x bfloat> %a, <{elements} x bfloat> %b)
  ret <{lanes} x float> %c
}}
"""
_NARROWED = """
define <{lanes} x i16> @{name}(<{lanes} x float> %value) {{
  %narrow = fptrunc <{lanes} x float> %value to <{lanes} x bfloat>
  %bits = bitcast <{lanes} x bfloat> %narrow to <{lanes} x i16>
  ret <{lanes} x i16> %bits
}}
"""


def dot_function(lanes: int) -> str:
    """The name of the function that adds two products of bfloat16 numbers to each of so many lanes.

    It takes the sums, and both operands as 32-bit integers: pairs of numbers.
    """
    return f"{_PREFIX}dot_{lanes}"


def has_bfloat16(target: tvm.target.Target) -> bool:
    """Whether the target has the instructions."""
    return f"+{BFLOAT16_FEATURE}" in [str(name) for name in target.attrs.get("mattr", ())]


def with_bfloat16(body: tirx.Stmt) -> tirx.Stmt:
    """A lowered body whose conversions and dot products of bfloat16 numbers are instructions."""
    used: dict[str, str] = {}
    rules: list[Rule] = [(tirx.Cast, _narrowed(used)), (tvm.ir.Call, _noted(used))]
    made = mapped(body, *rules)
    if not used:
        return body
    text = tvm.ir.StringImm("".join(used[name] for name in sorted(used)))
    return tirx.AttrStmt(tirx.const(0, "int32"), "pragma_import_llvm", text, made)


def _noted(used: dict[str, str]) -> Callable[[Any], Any]:
    """Keeps calls as they are, and the functions that they call in `used`."""
    names = {dot_function(lanes): lanes for lanes in _LANES}

    def visit(call: Any) -> Any:
        first = call.args[0] if len(call.args) else None
        name = str(first.value) if isinstance(first, tvm.ir.StringImm) else ""
        if name in names:
            lanes = names[name]
            used[name] = _DOT.format(lanes=lanes, bits=32 * lanes, elements=2 * lanes, name=name)
        return call

    return visit


def _narrowed(used: dict[str, str]) -> Callable[[Any], Any]:
    """Replaces TVM's conversion to bfloat16, which is written as integer arithmetic."""

    def visit(cast: Any) -> Any:
        kind, _, count = str(cast.ty.dtype).partition("x")
        value = _rounded(cast.value) if kind == "uint16" and count else None
        lanes = int(count or 1)
        if value is None or lanes not in _LANES:
            return cast
        name = f"{_PREFIX}narrowed_{lanes}"
        used[name] = _NARROWED.format(lanes=lanes, name=name)
        return tirx.call_pure_extern(str(cast.ty.dtype), name, value)

    return visit


def _rounded(value: Any) -> Any | None:
    """The float whose bits are rounded to their upper half by an expression; None of other expressions.

    TVM writes (bits + ((bits >> 16 & 1) + 0x7FFF)) >> 16, where the bits may have a name.
    """
    if not isinstance(value, tirx.RShift) or not isinstance(value.a, tirx.Add):
        return None
    bits = value.a.a
    lanes = int(str(bits.ty.dtype).partition("x")[2])

    def all_of(number: int) -> Any:
        return tirx.Broadcast(tirx.const(number, "uint32"), lanes)

    wanted = (bits + (((bits >> all_of(16)) & all_of(1)) + all_of(0x7FFF))) >> all_of(16)
    if not tvm_ffi.structural_equal(value, wanted):
        return None
    kind = f"float32x{lanes}"
    if isinstance(bits, tvm.ir.Call) and bits.op.name == "tirx.reinterpret":
        if str(bits.args[0].ty.dtype) == kind:
            return bits.args[0]
    return tirx.reinterpret(kind, bits)
