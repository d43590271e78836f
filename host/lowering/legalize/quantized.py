"""Elements of quantised tensors (ONNX QuantizeLinear and DequantizeLinear)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import tirx

Expression = Any


# Added to a number below 2^22, this leaves the nearest whole number, ties to even, in the low bits of it:
# fp32 has no digits behind the point up here. The C library's functions for it are calls on processors that
# lack the instruction, and a conversion of the result is saved.
_ROUNDER = 1.5 * 2.0**23
_ROUNDER_BITS = int(np.float32(_ROUNDER).view(np.int32))


def quantize(args: Sequence[Expression], attrs: dict[str, Any], dtype: str) -> Expression:
    """saturate(round(x / scale) + zero point), ties rounded to even; results of up to 16 bits.

    The bounds are whole numbers, so it makes no difference that they come before the rounding.
    """
    value, scale, zero = args
    quotient = value if _is_one(scale) else value / scale
    limits, shift, offset = np.iinfo(dtype), zero.astype("float32"), zero.astype("int32")
    low, high = (tirx.const(float(limit), "float32") - shift for limit in (limits.min, limits.max))
    rounded = tirx.max(tirx.min(quotient, high), low) + tirx.const(_ROUNDER, "float32")
    bits = tirx.reinterpret("int32", rounded)
    return (bits + (offset - tirx.const(_ROUNDER_BITS, "int32"))).astype(dtype)


def dequantize(args: Sequence[Expression], attrs: dict[str, Any], dtype: str) -> Expression:
    """(x - zero point) * scale; the difference in int32."""
    value, scale, zero = args
    return (value.astype("int32") - zero.astype("int32")).astype(dtype) * scale


def _is_one(scale: Expression) -> bool:
    return isinstance(scale, tirx.FloatImm) and float(scale.value) == 1.0
