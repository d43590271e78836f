"""Results in half precision whose last additions and bounds are computed in halves."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import tirx

from host.lowering.expressions.stage import Expression, dtype_of

_SUMS, _BOUNDS = (tirx.Add, tirx.Sub), (tirx.Max, tirx.Min)
_LARGEST = 65504.0


def as_half(value: Expression, half: str) -> Expression:
    """A value in single precision, converted to a half.

    One sum of halves and what bounds it are computed in halves, twice as many at once: they are the same
    number as if they were rounded at the end. What else is computed, sums of sums among it, and what is added
    to sums in single precision, stays in that.
    """
    narrow = _narrow(value, half, _SUMS + _BOUNDS)
    return value.astype(half) if narrow is None else narrow


def _narrow(value: Any, half: str, kinds: Any) -> Any:
    """The value in halves, of operations of `kinds`; None where that would round more than once."""
    if isinstance(value, tirx.Cast) and dtype_of(value.value) == half:
        return value.value
    if isinstance(value, tirx.FloatImm):
        number = float(value.value)
        # Rounding a bound rounds what it bounds; rounding what is added would be one more.
        fits = abs(number) <= _LARGEST and (kinds != _BOUNDS or float(np.float16(number)) == number)
        return tirx.const(number, half) if fits else None
    if not isinstance(value, kinds):
        return None
    inside = _BOUNDS if isinstance(value, _SUMS) else kinds
    left, right = _narrow(value.a, half, inside), _narrow(value.b, half, inside)
    return None if left is None or right is None else type(value)(left, right)
