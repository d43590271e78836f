"""Rounding and narrowing to bytes by the processor's saturating instructions.

`host.lowering` bounds a number from both sides, rounds it by adding 1.5 * 2^23, and takes the low bits of
the sum.

- AVX-512: VCVTPS2DQ and VPMOVUSDB, for unsigned bytes without a zero point. The conversion rounds to the
  nearest number, ties to even, and gives 0x80000000 for what is too large and for NaN (Intel SDM, CVTPS2DQ);
  the narrowing makes 255 of all that is larger without a sign. So only the lower bound is left.
- AArch64: FCVTNS, SQXTN, SQADD with a zero point, and SQXTN or SQXTUN. The conversion rounds in the same way
  and saturates, as the narrowings and the addition do (Arm ARM). Bounds that are those of the type are left
  out; NaN, which FCVTNS makes 0, is bounded from above where a number may be NaN.

The results are the same for every number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import tirx

from host.tensor_ir.structural import mapped

_LANES = 16
_FEATURE = "+avx512bw"
_CONVERSION = "llvm.x86.avx512.mask.cvtps2dq.512"
# The rounding of the processor's mode, and no lane left out.
_CURRENT_ROUNDING, _ALL_LANES = 4, -1
_ROUNDER, _ROUNDER_BITS = 1.5 * 2.0**23, 0x4B400000
_MOST = 255

_BYTES = ("int8", "uint8")
# Lanes of vectors that AArch64 narrows, in pieces of four numbers.
_ARM_LANES, _PIECE = (4, 8, 16), 4
_ARM_PREFIX = "edgetlm_rounded_"
_ARM_DECLARED = """
declare <4 x i32> @llvm.aarch64.neon.fcvtns.v4i32.v4f32(<4 x float>)
declare <4 x i16> @llvm.aarch64.neon.sqxtn.v4i16(<4 x i32>)
declare <8 x i16> @llvm.sadd.sat.v8i16(<8 x i16>, <8 x i16>)
declare <8 x i8> @llvm.aarch64.neon.sqxtn.v8i8(<8 x i16>)
declare <8 x i8> @llvm.aarch64.neon.sqxtun.v8i8(<8 x i16>)
"""


def saturation_for(target: tvm.target.Target) -> Callable[[tirx.Stmt], tirx.Stmt] | None:
    """What rewrites a lowered body for the saturating instructions of a target; None where it has none."""
    level = str(target.attrs.get("mcpu", ""))
    if level == "x86-64-v4" or _FEATURE in [str(name) for name in target.attrs.get("mattr", ())]:
        return lambda body: mapped(body, (tirx.Cast, _narrowed))
    if str(target.attrs.get("mtriple", "")).startswith("aarch64"):
        return _with_arm_narrowing
    return None


def _narrowed(cast: Any) -> Any:
    """uint8(bits(max(min(x, 255), 0) + rounder) - bits(rounder)) as a saturated conversion.

    A zero point would be added to what may be 0x80000000 or near it, where LLVM takes no sum to overflow.
    """
    if str(cast.ty.dtype) != f"uint8x{_LANES}":
        return cast
    if (found := _rounded(cast)) is None or found[1:] != (0, _MOST, 0):
        return cast
    # The number comes second, so that NaN stays NaN until it is converted.
    bounded = tirx.Max(tirx.Broadcast(tirx.const(0.0, "float32"), _LANES), found[0])
    whole = tirx.call_llvm_pure_intrin(
        f"int32x{_LANES}",
        _CONVERSION,
        bounded,
        tirx.Broadcast(tirx.const(0, "int32"), _LANES),
        tirx.const(_ALL_LANES, "int16"),
        tirx.const(_CURRENT_ROUNDING, "int32"),
    )
    bits = tirx.reinterpret(f"uint32x{_LANES}", whole)
    least = tirx.Min(bits, tirx.Broadcast(tirx.const(_MOST, "uint32"), _LANES))
    return tirx.Cast(f"uint8x{_LANES}", least)


def _with_arm_narrowing(body: tirx.Stmt) -> tirx.Stmt:
    """The body with calls of functions in LLVM's own language, which are imported and inlined."""
    used: dict[str, str] = {}

    def visit(cast: Any) -> Any:
        kind = tvm.DataType(str(cast.ty.dtype))
        dtype = next((name for name in _BYTES if str(cast.ty.dtype) == f"{name}x{kind.lanes}"), "")
        found = _rounded(cast) if dtype and kind.lanes in _ARM_LANES else None
        if found is None:
            return cast
        number, low, high, zero = found
        limits = np.iinfo(dtype)
        if low + zero < limits.min or high + zero > limits.max:
            return cast
        if high + zero < limits.max or not _is_of_integers(number):
            number = tirx.Min(number, tirx.Broadcast(tirx.const(high, "float32"), kind.lanes))
        if low + zero > limits.min:
            number = tirx.Max(number, tirx.Broadcast(tirx.const(low, "float32"), kind.lanes))
        name = f"{_ARM_PREFIX}{dtype}_{kind.lanes}"
        used[name] = _arm_function(name, dtype, kind.lanes)
        return tirx.call_pure_extern(str(cast.ty.dtype), name, number, tirx.const(int(zero), "int16"))

    made = mapped(body, (tirx.Cast, visit))
    if not used:
        return body
    text = tvm.ir.StringImm(_ARM_DECLARED + "".join(used[name] for name in sorted(used)))
    return tirx.AttrStmt(tirx.const(0, "int32"), "pragma_import_llvm", text, made)


def _arm_function(name: str, dtype: str, lanes: int) -> str:
    """Text of the function that rounds and narrows a vector."""
    lines = [
        f"define <{lanes} x i8> @{name}(<{lanes} x float> %given, i16 %zero) {{",
        "  %first = insertelement <8 x i16> poison, i16 %zero, i64 0",
        "  %zeros = shufflevector <8 x i16> %first, <8 x i16> poison, <8 x i32> zeroinitializer",
    ]
    for piece in range(lanes // _PIECE):
        places = ", ".join(f"i32 {piece * _PIECE + lane}" for lane in range(_PIECE))
        lines += [
            f"  %x{piece} = shufflevector <{lanes} x float> %given, <{lanes} x float> poison, "
            f"<{_PIECE} x i32> <{places}>",
            f"  %w{piece} = call <4 x i32> @llvm.aarch64.neon.fcvtns.v4i32.v4f32(<4 x float> %x{piece})",
            f"  %h{piece} = call <4 x i16> @llvm.aarch64.neon.sqxtn.v4i16(<4 x i32> %w{piece})",
        ]
    narrowing = "sqxtn" if dtype == "int8" else "sqxtun"
    pairs = max(1, lanes // 8)
    for pair in range(pairs):
        upper = f"%h{2 * pair + 1}" if lanes > _PIECE else "poison"
        all_lanes = (f"i32 {lane if lane < lanes else 'poison'}" for lane in range(8))
        lines += [
            f"  %p{pair} = shufflevector <4 x i16> %h{2 * pair}, <4 x i16> {upper}, "
            f"<8 x i32> <{', '.join(all_lanes)}>",
            f"  %s{pair} = call <8 x i16> @llvm.sadd.sat.v8i16(<8 x i16> %p{pair}, <8 x i16> %zeros)",
            f"  %b{pair} = call <8 x i8> @llvm.aarch64.neon.{narrowing}.v8i8(<8 x i16> %s{pair})",
        ]
    second = "%b1" if pairs > 1 else "poison"
    places = ", ".join(f"i32 {lane}" for lane in range(lanes))
    lines += [
        f"  %made = shufflevector <8 x i8> %b0, <8 x i8> {second}, <{lanes} x i32> <{places}>",
        f"  ret <{lanes} x i8> %made",
        "}",
        "",
    ]
    return "\n".join(lines)


def _is_of_integers(number: Any) -> bool:
    """Whether a number is made of integers, literals and one scale of each, as behind products of bytes.

    With finite scales it is not NaN.
    """
    if isinstance(number, tirx.Cast):
        return str(number.value.ty.dtype).startswith(("int", "uint"))
    if isinstance(number, tirx.Mul | tirx.Add | tirx.Sub | tirx.Max | tirx.Min):
        parts = [_is_of_integers(part) for part in (number.a, number.b)]
        return any(parts) if isinstance(number, tirx.Mul) else all(parts)
    return _literal(number) is not None


def _rounded(cast: Any) -> tuple[Any, float, float, float] | None:
    """The number, its bounds and the zero point in bits(max(min(x, high), low) + rounder) - bits(rounder)."""
    if not isinstance(cast.value, tirx.Add | tirx.Sub):
        return None
    offset = _literal(cast.value.b)
    value = _bounded(cast.value.a)
    if offset is None or value is None:
        return None
    number, high, low = value
    return number, low, high, _ROUNDER_BITS + (offset if isinstance(cast.value, tirx.Add) else -offset)


def _bounded(bits: Any) -> tuple[Any, float, float] | None:
    """The number in bits(max(min(number, high), low) + rounder), with both bounds."""
    if not isinstance(bits, tvm.ir.Call) or bits.op.name != "tirx.reinterpret":
        return None
    total = bits.args[0]
    if not isinstance(total, tirx.Add) or _literal(total.b) != _ROUNDER:
        return None
    if not isinstance(total.a, tirx.Max) or not isinstance(total.a.a, tirx.Min):
        return None
    low, high = _literal(total.a.b), _literal(total.a.a.b)
    return None if low is None or high is None else (total.a.a.a, high, low)


def _literal(value: Any) -> float | None:
    """The number that a vector repeats; None where it is computed."""
    number = value.value if isinstance(value, tirx.Broadcast) else None
    return number.value if isinstance(number, tirx.IntImm | tirx.FloatImm) else None
