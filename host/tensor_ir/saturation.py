"""Rounding and narrowing to unsigned bytes without a zero point on AVX-512: VCVTPS2DQ and VPMOVUSDB.

`host.lowering` bounds a number from both sides, rounds it by adding 1.5 * 2^23, and takes the low bits of
the sum. The conversion of AVX-512 rounds to the nearest number, ties to even, and gives 0x80000000 for what
is too large and for NaN (Intel SDM, CVTPS2DQ); the narrowing makes 255 of all that is larger without a sign.
So only the lower bound is left, with the same result for every number and one operation in five less.
"""

from __future__ import annotations

from typing import Any

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


def saturates(target: tvm.target.Target) -> bool:
    """Whether the target has the instructions: those of AVX-512 that work on bytes."""
    level = str(target.attrs.get("mcpu", ""))
    return level == "x86-64-v4" or _FEATURE in [str(name) for name in target.attrs.get("mattr", ())]


def with_saturation(body: tirx.Stmt) -> tirx.Stmt:
    """A lowered body whose vectors are rounded to unsigned bytes by the instructions."""
    return mapped(body, (tirx.Cast, _narrowed))


def _narrowed(cast: Any) -> Any:
    """uint8(bits(max(min(x, 255), 0) + rounder) - bits(rounder)) as a saturated conversion.

    A zero point would be added to what may be 0x80000000 or near it, where LLVM takes no sum to overflow.
    """
    if str(cast.ty.dtype) != f"uint8x{_LANES}" or not isinstance(cast.value, tirx.Add | tirx.Sub):
        return cast
    offset = _literal(cast.value.b)
    value = _bounded(cast.value.a)
    if offset is None or value is None:
        return cast
    number, high, low = value
    zero = _ROUNDER_BITS + (offset if isinstance(cast.value, tirx.Add) else -offset)
    if (low, high, zero) != (0, _MOST, 0):
        return cast
    # The number comes second, so that NaN stays NaN until it is converted.
    bounded = tirx.Max(tirx.Broadcast(tirx.const(0.0, "float32"), _LANES), number)
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
