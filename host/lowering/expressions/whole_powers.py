"""Powers of whole numbers, by squares: processors have none, and TVM's are of floats alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import tirx

from host.lowering.expressions.math import bind
from host.lowering.expressions.stage import Expression
from host.lowering.expressions.truth import compared
from host.lowering.types import numeric_type


def whole_power(base: Expression, exponent: Expression, dtype: str) -> Expression:
    """`base` to the `exponent`, both of an integer type, without what has no place in it, as in PyTorch.

    With a negative exponent, 1 and -1 are left of powers of themselves, and nothing of other numbers.
    """
    if isinstance(exponent, tirx.IntImm):
        return bind(base, lambda b: _by_constant(b, int(exponent.value), dtype))
    bits = numeric_type(dtype).bytes * 8 - (1 if dtype.startswith("int") else 0)

    def of(b: Expression, e: Expression) -> Expression:
        made = _by_squares(b, e, bits, dtype)
        if not dtype.startswith("int"):
            return made
        odd = compared("not_equal", tirx.bitwise_and(e, tirx.const(1, dtype)), tirx.const(0, dtype))
        below = compared("less", e, tirx.const(0, dtype))
        return tirx.Select(below, _unit(b, lambda: tirx.Select(odd, b, -b), dtype), made)

    return bind(base, lambda b: bind(exponent, lambda e: of(b, e)))


def folded_power(base: np.ndarray, exponent: np.ndarray) -> np.ndarray | None:
    """Powers of constants; negative ones of whole numbers, which NumPy refuses, are left to the device."""
    if base.dtype.kind in "iu" and (exponent < 0).any():
        return None
    made: np.ndarray = np.power(base, exponent)
    return made


def _by_constant(base: Expression, exponent: int, dtype: str) -> Expression:
    if exponent < 0:
        return _unit(base, lambda: base if exponent % 2 else -base, dtype)
    one = tirx.const(1, dtype)

    def times(made: Expression, square: Expression, left: int) -> Expression:
        if left == 0:
            return made
        made = made * square if left % 2 else made
        if left == 1:
            return made
        return bind(made, lambda m: bind(square * square, lambda s: times(m, s, left // 2)))

    return times(one, base, exponent)


def _unit(base: Expression, of_minus_one: Callable[[], Expression], dtype: str) -> Expression:
    """What a negative power leaves of a number; `of_minus_one` is that of -1."""
    one, zero = tirx.const(1, dtype), tirx.const(0, dtype)
    if not dtype.startswith("int"):
        return tirx.Select(compared("equal", base, one), one, zero)
    minus = compared("equal", base, tirx.const(-1, dtype))
    return tirx.Select(minus, of_minus_one(), tirx.Select(compared("equal", base, one), one, zero))


def _by_squares(base: Expression, exponent: Expression, bits: int, dtype: str) -> Expression:
    """The product of the squares of squares whose bits the exponent has; all count, as products wrap."""

    def step(made: Expression, square: Expression, bit: int) -> Expression:
        shifted = exponent >> tirx.const(bit, dtype)
        has = compared("not_equal", tirx.bitwise_and(shifted, tirx.const(1, dtype)), tirx.const(0, dtype))
        taken = tirx.Select(has, made * square, made)
        if bit + 1 == bits:
            return taken
        return bind(taken, lambda m: bind(square * square, lambda s: step(m, s, bit + 1)))

    return step(tirx.const(1, dtype), base, 0)
