"""Elements of quantised tensors (ONNX QuantizeLinear and DequantizeLinear)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import tirx

Expression = Any


def quantize(args: Sequence[Expression], attrs: dict[str, Any], dtype: str) -> Expression:
    """saturate(round(x / scale) + zero point), ties rounded to even.

    The zero point is added in fp32, which holds all sums that do not saturate; a quotient beyond the range
    of the conversion is bounded before it.
    """
    value, scale, zero = args
    quotient = value if _is_one(scale) else value / scale
    shifted = tirx.nearbyint(quotient) + zero.astype("float32")
    limits = np.iinfo(dtype)
    low, high = (tirx.const(float(limit), "float32") for limit in (limits.min, limits.max))
    # By way of int32: processors convert vectors to that, and LLVM narrows vectors of it well.
    return tirx.max(tirx.min(shifted, high), low).astype("int32").astype(dtype)


def dequantize(args: Sequence[Expression], attrs: dict[str, Any], dtype: str) -> Expression:
    """(x - zero point) * scale; the difference in int32."""
    value, scale, zero = args
    return (value.astype("int32") - zero.astype("int32")).astype(dtype) * scale


def _is_one(scale: Expression) -> bool:
    return isinstance(scale, tirx.FloatImm) and float(scale.value) == 1.0
