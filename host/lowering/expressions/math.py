"""fp32 functions made of additions, multiplications and few divisions.

LLVM turns its own `exp`, `tanh`, `erf` into calls of libm, one per element; these forms are made
vectors of like any other arithmetic. Coefficients are minimax fits of this project (weighted least
squares on Chebyshev nodes, weights raised where the error is largest). `tests/unit/lowering/test_math.py`
states and checks the error of each: about 2e-7 relative for `exp` and `log`, 4e-7 for `tanh` and `erf`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx

Expression = Any

# (exp(r) - 1 - r) / r^2 on |r| <= ln(2) / 2.
_EXP = (0.49999231785573905, 0.16667114465729058, 0.04189011398135035, 0.008312525109345641)
# tanh(x) = x P(x^2) / Q(x^2) on |x| <= 9; beyond, it is 1 to the last bit.
_TANH_P = (
    0.999999998725278,
    0.13680849863350372,
    0.0038694997449242466,
    2.8031144810588857e-05,
    3.0642132931335866e-08,
    -1.224596070017643e-11,
)
_TANH_Q = (1.0, 0.47014181953820366, 0.027250126438043146, 0.00039406988418456973, 1.2890235368630682e-06)
# erf(x) = x P(x^2) / Q(x^2) on |x| <= 3.9; 1 - erf(3.9) is 3.5e-8.
_ERF_P = (
    1.128379147652707,
    0.18966596832063004,
    0.052667952355282065,
    0.003738305296332139,
    0.00028506062876964953,
    2.0664709584198534e-06,
)
_ERF_Q = (
    1.0,
    0.5014198698569715,
    0.11381858893865532,
    0.014914195020385667,
    0.0011573651125263628,
    3.826991562111082e-05,
)
# (1 + 2 x) exp(x^2) erfc(x) as a polynomial of (x - c) / (x + c) on 0 <= x <= 10.2, the form of Shepherd and
# Laframboise, Mathematics of Computation 36 (1981). Beyond, erfc(x) is below all floats.
_ERFC = (
    1.2769783932342003,
    -0.09276398024191912,
    -0.16603142512389366,
    0.16405533787793003,
    -0.05420417855574146,
    -0.008059805081279245,
    0.008630955683942851,
    0.0013130666356690973,
    -0.0012288550010885384,
    -0.00039971240647342576,
)
_ERFC_CENTRE = 2.0
_ERFC_HIGHEST = 10.2
# (log(1 + r) - r) / r^2 on sqrt(1/2) - 1 <= r <= sqrt(2) - 1.
_LOG = (
    -0.5000032343918451,
    0.333347149204122,
    -0.24971228354961836,
    0.1990688255112881,
    -0.17243226234807832,
    0.1618050735398114,
    -0.10082381354542214,
)

# ln(2) in two parts: the first has few enough bits that n * _LN2_HIGH is exact.
_LN2_HIGH = 0.693359375
_LN2_LOW = -2.12194440e-4
_LOG2_E = 1.4426950408889634
# Results that are no normal number are 0, those above the largest are infinite. `exp` gives 0 from
# 2^-125.5 down: it makes 2^(n-1), which is normal for the largest n but not for n = -126.
_EXP_SMALLEST_NORMAL = -87.3365447
_EXP_LOWEST = -86.9899
_EXP_HIGHEST = 88.7228391
# A sum with it keeps whole numbers alone, in the last bits, 127 more than they are: the exponent of 2^n.
_ROUNDING = 1.5 * 2**23 + 127
_LN2 = 0.6931471805599453
# Where `_EXP` is fitted: ln(2) / 2.
_EXP_NEAR = 0.34657
# Far below what changes a sum with a number of the size of the factor.
_TO_KEEP_NAN = 1e-20
_SQRT_HALF = 0.7071067811865476


def number(value: float) -> Expression:
    """A float32 constant."""
    return tirx.const(value, "float32")


def bind(value: Expression, body: Callable[[Expression], Expression]) -> Expression:
    """`body(value)` with `value` computed once."""
    if isinstance(value, (tirx.Var, tirx.FloatImm)):
        return body(value)
    variable = tirx.Var("x", value.ty.dtype if hasattr(value, "ty") else value.dtype)
    return tirx.Let(variable, value, body(variable))


def _polynomial(coefficients: Sequence[float], x: Expression) -> Expression:
    result = number(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = result * x + number(coefficient)
    return result


def _limit(x: Expression, low: float, high: float) -> Expression:
    """`x` within bounds; NaN stays NaN."""
    bounded = tirx.Select(x > number(high), number(high), x)
    return bind(bounded, lambda b: tirx.Select(b < number(low), number(low), b))


def exp(x: Expression) -> Expression:
    """E to the x: 2^n times a polynomial of the remainder."""

    def reduced(b: Expression) -> Expression:
        return bind(tirx.floor(b * number(_LOG2_E) + number(0.5)), lambda n: scaled(b, n))

    def scaled(b: Expression, n: Expression) -> Expression:
        r = b - n * number(_LN2_HIGH) - n * number(_LN2_LOW)
        bits = (tirx.Cast("int32", n) + tirx.const(126, "int32")) << tirx.const(23, "int32")
        power = tirx.reinterpret("float32", bits)
        value = bind(r, lambda v: _polynomial(_EXP, v) * (v * v) + v + number(1.0))
        return value * number(2.0) * power

    def bounded(v: Expression) -> Expression:
        result = bind(_limit(v, _EXP_LOWEST, _EXP_HIGHEST), reduced)
        low = tirx.Select(v < number(_EXP_LOWEST), number(0.0), result)
        return tirx.Select(v > number(_EXP_HIGHEST), number(float("inf")), low)

    return bind(x, bounded)


def expm1(x: Expression) -> Expression:
    """E to the x less 1 in float32, with all its digits where that is small."""

    def of(v: Expression) -> Expression:
        near = _polynomial(_EXP, v) * (v * v) + v
        return tirx.Select(v * v < number(_EXP_NEAR * _EXP_NEAR), near, exp(v) - number(1.0))

    return bind(x, of)


def exp_of_nonpositive(x: Expression) -> Expression:
    """`exp` for arguments of at most 0, minus infinity included (softmax after its maximum is taken off)."""

    def bounded(v: Expression) -> Expression:
        def reduced(b: Expression) -> Expression:
            return bind(tirx.floor(b * number(_LOG2_E) + number(0.5)), lambda n: scaled(b, n))

        def scaled(b: Expression, n: Expression) -> Expression:
            r = b - n * number(_LN2_HIGH) - n * number(_LN2_LOW)
            bits = (tirx.Cast("int32", n) + tirx.const(127, "int32")) << tirx.const(23, "int32")
            power = tirx.reinterpret("float32", bits)
            return bind(r, lambda w: (_polynomial(_EXP, w) * (w * w) + w + number(1.0)) * power)

        low = tirx.Select(v < number(_EXP_SMALLEST_NORMAL), number(_EXP_SMALLEST_NORMAL), v)
        return tirx.Select(v < number(_EXP_SMALLEST_NORMAL), number(0.0), bind(low, reduced))

    return bind(x, bounded)


def exp_below(x: Expression, largest: Expression) -> Expression:
    """E to the x - `largest`, of which no `x` is above: one element of a softmax before it is divided."""
    return exp_of_nonpositive(x - largest)


def weight_below(x: Expression, largest: Expression, scale: float = 1.0) -> Expression:
    """E to the scale (x - `largest`), of which no `x` is above: a weight beside a largest one of 1.

    Its error is 2e-7 of it near there, and at most 1e-5 of weights that are nothing beside 1. It takes
    two thirds of the operations of `exp_of_nonpositive`: n is rounded by a sum, whose bits are the exponent,
    and n ln(2) is taken off at once.

    Args:
        x: a float32.
        largest: another one.
        scale: a positive number, which costs nothing.
    """
    lowest = _EXP_SMALLEST_NORMAL / scale

    def of(d: Expression) -> Expression:
        bounded = tirx.Select(d < number(lowest), number(lowest), d)
        return tirx.Select(d < number(lowest), number(0.0), bind(bounded, counted))

    def counted(b: Expression) -> Expression:
        return bind(b * number(_LOG2_E * scale) + number(_ROUNDING), lambda c: powered(b, c))

    def powered(b: Expression, c: Expression) -> Expression:
        bits = tirx.reinterpret("int32", c) << tirx.const(23, "int32")
        rest = b - (c - number(_ROUNDING)) * number(_LN2 / scale)
        factors = [factor * scale**degree for degree, factor in enumerate((1.0, 1.0, *_EXP))]
        return bind(rest, lambda r: _polynomial(factors, r) * tirx.reinterpret("float32", bits))

    return bind(x - largest, of)


def _odd_rational(x: Expression, bound: float, p: Sequence[float], q: Sequence[float]) -> Expression:
    def ratio(b: Expression) -> Expression:
        quotient = bind(b * b, lambda u: b * _polynomial(p, u) / _polynomial(q, u))
        # Rounding makes the quotient up to 1.0000002, of which 1 - |y| would be negative. A choice by a name
        # that stands for so much takes TVM minutes, and a maximum may lose NaN, which the sum has again.
        within = tirx.max(tirx.min(quotient, number(1.0)), number(-1.0))
        return within + b * number(_TO_KEEP_NAN)

    return bind(x, lambda v: bind(_limit(v, -bound, bound), ratio))


def tanh(x: Expression) -> Expression:
    """Hyperbolic tangent in float32, within [-1, 1]: a quotient of two polynomials of `x` in [-9, 9]."""
    return _odd_rational(x, 9.0, _TANH_P, _TANH_Q)


def erf(x: Expression) -> Expression:
    """The error function in float32, within [-1, 1]: a quotient of two polynomials of `x` in [-3.9, 3.9]."""
    return _odd_rational(x, 3.9, _ERF_P, _ERF_Q)


def erfc(x: Expression) -> Expression:
    """1 - erf(x) in float32, with all its digits where that is small; what is no normal number may be 0."""

    def of_size(a: Expression) -> Expression:
        t = (a - number(_ERFC_CENTRE)) / (a + number(_ERFC_CENTRE))
        share = bind(t, lambda v: _polynomial(_ERFC, v)) / (number(1.0) + number(2.0) * a)
        return bind(a * a, lambda square: exp_of_square(a, square) * share)

    def exp_of_square(a: Expression, square: Expression) -> Expression:
        # The upper bits of `a`, whose square is exact, say how much the square was rounded by.
        bits = tirx.bitwise_and(tirx.reinterpret("int32", a), tirx.const(-(1 << 12), "int32"))
        rounded = bind(tirx.reinterpret("float32", bits), lambda upper: error(a, upper, square))
        return bind(exp_of_nonpositive(-square), lambda power: power - power * rounded)

    def error(a: Expression, upper: Expression, square: Expression) -> Expression:
        lower = a - upper
        return bind(lower, lambda v: (upper * upper - square) + number(2.0) * upper * v + v * v)

    def of_both_signs(v: Expression) -> Expression:
        size = bind(tirx.Select(v < number(0.0), -v, v), lambda a: _limit(a, 0.0, _ERFC_HIGHEST))
        return bind(bind(size, of_size), lambda r: tirx.Select(v < number(0.0), number(2.0) - r, r))

    return bind(x, of_both_signs)


def sigmoid(x: Expression) -> Expression:
    """1 / (1 + exp(-x))."""
    return number(1.0) / (number(1.0) + exp(-x))


def log(x: Expression) -> Expression:
    """Natural logarithm of numbers that are not denormal; -inf at 0, NaN below."""

    def finite(v: Expression) -> Expression:
        bits = tirx.reinterpret("int32", v)
        # Exponent counted from sqrt(1/2), so that the mantissa lies around 1.
        shifted = bits - tirx.const(0x3F3504F3, "int32")
        exponent = shifted >> tirx.const(23, "int32")
        return bind(exponent, lambda e: joined(bits, e))

    def joined(bits: Expression, e: Expression) -> Expression:
        mantissa = tirx.reinterpret("float32", bits - (e << tirx.const(23, "int32")))
        n = tirx.Cast("float32", e)
        return bind(
            mantissa - number(1.0),
            lambda r: _polynomial(_LOG, r) * (r * r) + n * number(_LN2_LOW) + r + n * number(_LN2_HIGH),
        )

    def special(v: Expression) -> Expression:
        infinity = number(float("inf"))
        positive = tirx.Select(v < infinity, finite(v), v)
        zero = tirx.Select(v == number(0.0), number(float("-inf")), number(float("nan")))
        return tirx.Select(v > number(0.0), positive, zero)

    return bind(x, special)


def log1p(x: Expression) -> Expression:
    """The natural logarithm of 1 + x in float32, with all its digits where that is small."""

    def of(v: Expression) -> Expression:
        near = tirx.And(v > number(_SQRT_HALF - 1), v < number(2 * _SQRT_HALF - 1))
        return tirx.Select(near, _polynomial(_LOG, v) * (v * v) + v, log(number(1.0) + v))

    return bind(x, of)


def gelu(x: Expression) -> Expression:
    """X times the normal distribution's cumulative probability."""
    return bind(x, lambda v: number(0.5) * v * (number(1.0) + erf(v * number(_SQRT_HALF))))


def gelu_tanh(x: Expression) -> Expression:
    """GELU in the approximation by a hyperbolic tangent."""

    def body(v: Expression) -> Expression:
        inner = v * (number(0.7978845608028654) + number(0.7978845608028654 * 0.044715) * (v * v))
        return number(0.5) * v * (number(1.0) + tanh(inner))

    return bind(x, body)


def silu(x: Expression) -> Expression:
    """`x * sigmoid(x)` in float32, also called swish."""
    return bind(x, lambda v: v / (number(1.0) + exp(-v)))
