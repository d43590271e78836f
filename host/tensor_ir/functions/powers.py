"""Powers in single precision as arithmetic, which has vectors: LLVM calls the C library for each element.

x^y = 2^(y log2 |x|) with the sign of x where y is odd. The logarithm and its product with y are computed in
double precision, as a result with 24 digits of up to 2^128 needs 31 digits of its exponent; what is left
behind the whole number of the exponent is computed in single precision again. The error is below two units
of the last place. Zeros, infinities, NaN and numbers below the normal ones give what the C library gives
(C23, F.10.4.5), except that all NaN are quiet.

The coefficients are fits of this project at the nodes of Chebyshev's polynomials: log2(1 + r) / r with a
relative error of 2^-35, and 2^f with one of 2^-27. Programs of schedules and records stay as they are. A GPU
computes doubles too slowly, and has a function of its own.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isinf, isnan, log2, nan
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from host.tensor_ir.nested_names import is_lazy, without_nested_names
from host.tensor_ir.structural import computed_once, mapped

_POWER = "tirx.pow"
# log2(1 + r) / r on sqrt(1/2) - 1 <= r <= sqrt(2) - 1.
_LOG2 = (
    1.4426950408708794,
    -0.7213475209631551,
    0.4808983601762459,
    -0.3606736553159396,
    0.28853739437873954,
    -0.24045433696411997,
    0.20617283226751987,
    -0.1802710257711494,
    0.15878356832510718,
    -0.14349039375280995,
    0.14495052999815844,
    -0.1414478821058739,
    0.07553790398013412,
)
# 2^f on -1/2 <= f <= 1/2.
_EXP2 = (
    1.0,
    0.6931471880262288,
    0.24022650760568126,
    0.05550357114219078,
    0.009618082557277852,
    0.0013390863364671234,
    0.0001545316294512069,
)

_SIGN, _SIZE = -(1 << 31), (1 << 31) - 1
_MANTISSA_BITS = 23
# The bits of sqrt(1/2): exponents are counted from there, so that mantissas lie around 1.
_SQRT_HALF_BITS = 0x3F3504F3
_EXPONENT_OF_ONE = 127
_LEAST_NORMAL, _LARGEST = 2.0**-126, float.fromhex("0x1.fffffep127")
# Beyond it a power of two is infinite, and its reciprocal zero.
_MOST = 160.0


def with_vector_powers(body: tirx.Stmt, annotations: Mapping[str, Any]) -> tirx.Stmt:
    """The same with powers of single precision as arithmetic.

    Their names are buffers right away: passes that follow what names stand for take 1.5 s for a vector, and a
    factor more for a power of a power. Within `if_then_else` names cannot be buffers, as only one of its
    values is computed: powers there stay calls of the library.

    Args:
        body: of a function that is lowered for a processor. No simplification may follow: TVM takes numbers
            for ordered, and NaN is not.
        annotations: of a buffer on the stack.
    """
    found = False
    lazy = _lazy_powers(body)

    def written(call: tvm.ir.Call) -> Any:
        nonlocal found
        if not _is_power(call) or any(call.same_as(one) for one in lazy):
            return call
        kind, _, lanes = str(call.ty.dtype).partition("x")
        if kind != "float32":
            return call
        found = True
        return _Lanes(int(lanes or 1)).power(*call.args)

    made = mapped(body, (tvm.ir.Call, written))
    return without_nested_names(made, annotations) if found else body


def _lazy_powers(body: tirx.Stmt) -> list[tvm.ir.Call]:
    """The powers within expressions of which only one value is computed."""
    found: list[tvm.ir.Call] = []

    def note(call: tvm.ir.Call) -> None:
        if _is_power(call) and not any(call.same_as(one) for one in found):
            found.append(call)

    def visit(call: tvm.ir.Call) -> None:
        if is_lazy(call):
            tvm_ffi.structural_walk(call, (tvm.ir.Call, note))

    tvm_ffi.structural_walk(body, (tvm.ir.Call, visit))
    return found


def _is_power(call: tvm.ir.Call) -> bool:
    return getattr(call.op, "name", "") == _POWER


@dataclass(frozen=True)
class _Lanes:
    """Arithmetic of vectors.

    Attributes:
        lanes: elements of one; 1 for single numbers.
    """

    lanes: int

    def power(self, base: Any, exponent: Any) -> Any:
        """A vector to the power of another one, both in single precision."""
        known_base, known = _known(base), _known(exponent)
        if known_base is not None and 0.0 < known_base < inf:
            return self._of_number(known_base, exponent)
        if known is not None and not isnan(known):
            return computed_once(base, lambda x: self._to_number(x, known))
        return computed_once(base, lambda x: computed_once(exponent, lambda y: self._of_both(x, y)))

    def _of_number(self, base: float, exponent: Any) -> Any:
        if base == 1.0:
            return self._single(1.0)
        return self._power_of_two(self._wide(exponent) * self._double(log2(base)))

    def _to_number(self, x: Any, exponent: float) -> Any:
        if exponent == 0.0:
            return self._single(1.0)
        # An infinite exponent is a product with the logarithm of 1 nevertheless, and is even.
        finite = min(max(exponent, -_LARGEST), _LARGEST)
        made = self._power_of_two(self._logarithm(x) * self._double(finite))
        if isinf(exponent) or exponent % 2 == 0:
            return made
        return self._with_sign(made, x) if exponent % 2 == 1 else self._unless_negative(made, x)

    def _of_both(self, x: Any, y: Any) -> Any:
        below = tirx.Select(y < self._single(-_LARGEST), self._single(-_LARGEST), y)
        finite = tirx.Select(y > self._single(_LARGEST), self._single(_LARGEST), below)

        def signed(made: Any) -> Any:
            half = y * self._single(0.5)
            even = tirx.EQ(tirx.floor(half), half)
            whole = tirx.Select(even, made, self._with_sign(made, x))
            found = tirx.Select(tirx.EQ(tirx.floor(y), y), whole, self._unless_negative(made, x))
            # Also where the other operand is NaN.
            one = tirx.Select(tirx.EQ(y, self._single(0.0)), self._single(1.0), found)
            return tirx.Select(tirx.EQ(x, self._single(1.0)), self._single(1.0), one)

        return computed_once(self._power_of_two(self._wide(finite) * self._logarithm(x)), signed)

    def _with_sign(self, made: Any, x: Any) -> Any:
        sign = tirx.bitwise_and(self._bits(x), self._whole(_SIGN))
        return self._from_bits(tirx.bitwise_or(self._bits(made), sign))

    def _unless_negative(self, made: Any, x: Any) -> Any:
        """NaN for finite numbers below 0, which have no such power."""
        negative = tirx.And(x < self._single(0.0), x > self._single(-inf))
        return tirx.Select(negative, self._single(nan), made)

    def _logarithm(self, x: Any) -> Any:
        """Of the size of a number to the base of 2, in double precision; -inf of 0."""

        def of_size(size: Any) -> Any:
            tiny = size < self._single(_LEAST_NORMAL)
            scaled = tirx.Select(tiny, size * self._single(2.0**_MANTISSA_BITS), size)
            less = tirx.Select(tiny, self._single(float(_MANTISSA_BITS)), self._single(0.0))
            return computed_once(self._bits(scaled), lambda bits: of_bits(size, less, bits))

        def of_bits(size: Any, less: Any, bits: Any) -> Any:
            counted = (bits - self._whole(_SQRT_HALF_BITS)) >> self._whole(_MANTISSA_BITS)
            return computed_once(counted, lambda whole: joined(size, less, bits, whole))

        def joined(size: Any, less: Any, bits: Any, whole: Any) -> Any:
            mantissa = self._from_bits(bits - (whole << self._whole(_MANTISSA_BITS)))
            exponent = self._cast("float32", whole) - less
            # Mantissas of 0 and infinity are 1. NaN is in no order.
            known = tirx.Select(size > self._single(0.0), exponent, self._single(-inf))
            known = tirx.Select(size < self._single(inf), known, size)
            rest = self._wide(mantissa - self._single(1.0))
            return computed_once(
                rest, lambda r: self._wide(known) + r * self._polynomial(_LOG2, r, "float64")
            )

        size = self._from_bits(tirx.bitwise_and(self._bits(x), self._whole(_SIZE)))
        return computed_once(size, of_size)

    def _power_of_two(self, exponent: Any) -> Any:
        """Two to the power of a number of double precision, in single precision."""

        def of(z: Any) -> Any:
            return computed_once(self._cast("float32", z), lambda single: whole(z, single))

        def whole(z: Any, single: Any) -> Any:
            # NaN, too, gets a number here, and stays what it is in the rest.
            above = tirx.Select(single > self._single(-_MOST), single, self._single(-_MOST))
            limited = tirx.Select(single < self._single(_MOST), above, self._single(_MOST))
            return computed_once(tirx.floor(limited + self._single(0.5)), lambda n: rest(z, n))

        def rest(z: Any, n: Any) -> Any:
            return computed_once(self._cast("float32", z - self._wide(n)), lambda f: scaled(f, n))

        def scaled(f: Any, n: Any) -> Any:
            above = tirx.Select(f < self._single(-1.0), self._single(-1.0), f)
            kept = tirx.Select(f > self._single(1.0), self._single(1.0), above)
            value = computed_once(kept, lambda r: self._polynomial(_EXP2, r, "float32"))
            return computed_once(self._cast("int32", n), lambda count: in_two_steps(value, count))

        def in_two_steps(value: Any, count: Any) -> Any:
            """By two factors, so that each is a normal number, and the second one rounds what is not."""
            first = count >> self._whole(1)
            return value * self._two_to(first) * self._two_to(count - first)

        return computed_once(exponent, of)

    def _two_to(self, count: Any) -> Any:
        return self._from_bits((count + self._whole(_EXPONENT_OF_ONE)) << self._whole(_MANTISSA_BITS))

    def _polynomial(self, coefficients: Sequence[float], x: Any, kind: str) -> Any:
        result = self._spread(tirx.FloatImm(kind, coefficients[-1]))
        for coefficient in reversed(coefficients[:-1]):
            result = result * x + self._spread(tirx.FloatImm(kind, coefficient))
        return result

    def _bits(self, value: Any) -> Any:
        return tirx.reinterpret(self._type("int32"), value)

    def _from_bits(self, bits: Any) -> Any:
        return tirx.reinterpret(self._type("float32"), bits)

    def _single(self, value: float) -> Any:
        return self._spread(tirx.FloatImm("float32", value))

    def _double(self, value: float) -> Any:
        return self._spread(tirx.FloatImm("float64", value))

    def _whole(self, value: int) -> Any:
        return self._spread(tirx.IntImm("int32", value))

    def _spread(self, number: Any) -> Any:
        return number if self.lanes == 1 else tirx.Broadcast(number, self.lanes)

    def _wide(self, value: Any) -> Any:
        return self._cast("float64", value)

    def _cast(self, kind: str, value: Any) -> Any:
        return tirx.Cast(self._type(kind), value)

    def _type(self, kind: str) -> str:
        return kind if self.lanes == 1 else f"{kind}x{self.lanes}"


def _known(value: Any) -> float | None:
    """The number, of single precision, that all elements of a vector are; None where it is computed."""
    literal = value.value if isinstance(value, tirx.Broadcast) else value
    return ctypes.c_float(float(literal.value)).value if isinstance(literal, tirx.FloatImm) else None
