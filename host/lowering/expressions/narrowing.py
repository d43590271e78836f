"""Results in half precision whose last additions and bounds are computed in halves."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from host.lowering.expressions.stage import Expression, dtype_of

_SIDES = (tirx.Add, tirx.Sub, tirx.Max, tirx.Min)
_LARGEST = 65504.0


def as_half(value: Expression, half: str) -> Expression:
    """A value in single precision, converted to a half.

    Sums and bounds of halves are computed in halves, twice as many at once: one sum of halves and what bounds
    it are the same number as if they were rounded at the end. What else is computed, and what is added to
    sums in single precision, stays in that.
    """
    narrow = _narrow(value, half)
    return value.astype(half) if narrow is None else narrow


def _narrow(value: Any, half: str) -> Any:
    """The value in halves; None where that would round more than sums and what they add."""
    if isinstance(value, tirx.Cast) and dtype_of(value.value) == half:
        return value.value
    if isinstance(value, tirx.FloatImm):
        return tirx.const(float(value.value), half) if abs(float(value.value)) <= _LARGEST else None
    if not isinstance(value, _SIDES):
        return None
    left, right = _narrow(value.a, half), _narrow(value.b, half)
    return None if left is None or right is None else type(value)(left, right)
