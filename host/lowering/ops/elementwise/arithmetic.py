"""Element-wise arithmetic of two operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import copysign, inf
from typing import Any

import numpy as np
from tvm import tirx, topi

from host.lowering.builder import Builder
from host.lowering.expressions.math import bind
from host.lowering.expressions.stage import Expression
from host.lowering.expressions.truth import compared, is_same
from host.lowering.graph import Node, Value, constant
from host.lowering.ops.forms import ElementExpression, elementwise, integer, number
from host.lowering.ops.sequential.whole_powers import power_of_whole_numbers
from host.lowering.reader.call import OperatorCall
from host.lowering.spec import OpSpec, Recogniser, Simplification
from host.lowering.types import numeric_type

# The elements of larger constants are not looked at.
_FEW = 1 << 16


def _neutral(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | None:
    """X + 0, x - 0, x * 1, x / 1."""
    number = 0.0 if node.op in ("add", "subtract") else 1.0
    left, right = inputs
    if _is_all(right, number) and left.shape == node.output.shape:
        return left
    if node.op in ("add", "multiply") and _is_all(left, number) and right.shape == node.output.shape:
        return right
    return None


def _is_all(value: Value, number: float) -> bool:
    """Whether a constant of few elements is this number everywhere, as scales of an instance norm are."""
    few = value.data is not None and 0 < value.size <= _FEW
    return value.scalar() == number or (few and bool(np.all(value.data == number)))


def _subtract(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | None:
    """`0 - x` becomes a negation; an operation that changes nothing is removed."""
    left, right = inputs
    if left.scalar() == 0.0 and right.is_float and right.shape == node.output.shape:
        return builder.unary("negative", right)
    return _neutral(builder, node, inputs)


def _scale(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | None:
    """Multiplications and divisions by numbers become one multiplication, or none.

    A single number is divided by all means, which costs nothing: the step of a quantisation that is found at
    run time decides to which side each tie falls.
    """
    result = _neutral(builder, node, inputs)
    exact = node.op == "divide" and node.output.size == 1
    scaled = None if result is not None or exact else _by_number(node.op, inputs)
    if scaled is None or not node.output.is_float or scaled[0].shape != node.output.shape:
        return result
    value, factor = scaled
    inner = value.producer
    before = _by_number(inner.op, inner.inputs) if inner is not None else None
    if before is not None and before[0].shape == value.shape:
        value, factor = before[0], factor * before[1]
    elif node.op == "multiply":
        return None
    # Constants are fp32: 0.5 * 2 may come as 0.99999994.
    if abs(factor - 1.0) < 1e-6:
        return value
    return builder.binary("multiply", value, constant(np.asarray(factor, dtype=value.dtype)))


def _by_number(op: str, inputs: tuple[Value, ...]) -> tuple[Value, float] | None:
    """The operands x and c where the operation is x * c."""
    if op == "multiply":
        for value, other in (inputs, inputs[::-1]):
            number = other.scalar()
            if number is not None and not value.is_constant:
                return value, number
    if op == "divide":
        number = inputs[1].scalar()
        if number is not None and 1e-30 < abs(number) < 1e30:
            return inputs[0], 1.0 / number
    return None


def _read_power(builder: Builder, call: OperatorCall) -> Value:
    base, exponent = call.value(0), call.value(1)
    if numeric_type(call.dtype).is_integer:
        return power_of_whole_numbers(builder, base, exponent)
    return builder.one("power", [base, exponent], call.shape, call.dtype)


def _small_power(builder: Builder, node: Node) -> Value | None:
    """Powers that are a few multiplications or a root."""
    if node.op != "power" or not node.output.is_float or node.inputs[0].shape != node.output.shape:
        return None
    x, exponent = node.inputs[0], node.inputs[1].scalar()
    if exponent == 2.0:
        return builder.unary("square", x)
    if exponent == 3.0:
        return builder.binary("multiply", builder.unary("square", x), x)
    if exponent == 0.5:
        return builder.unary("sqrt", x)
    if exponent == -0.5:
        return builder.unary("rsqrt", x)
    if exponent == -1.0:
        return builder.unary("reciprocal", x)
    return None


def _divided(left: np.ndarray, right: np.ndarray) -> Any:
    if not integer(left):
        return np.divide(left, right)
    if not np.all(right):
        return None
    # Integers divide towards zero, as TVM's do. The smallest one has no size in its type.
    down, rest = left // right, left % right
    return down + ((rest != 0) & ((left < 0) != (right < 0))).astype(down.dtype)


def _unless_by_zero(function: Callable[..., Any]) -> Callable[..., Any]:
    """Division by zero is left to the device, whatever it does."""
    return lambda left, right: function(left, right) if np.all(right) else None


def _product(args: Sequence[Expression], attrs: Any, dtype: str) -> Expression:
    """Zero times NaN or infinity is NaN; TVM takes it for zero."""
    left, right = args
    for value, other in ((left, right), (right, left)):
        if _is_zero(value):
            return _times_zero(other, dtype)
    return topi.multiply(left, right)


def _difference(args: Sequence[Expression], attrs: Any, dtype: str) -> Expression:
    """The difference of equal numbers, which TVM takes for zero, is NaN where they are not finite."""
    left, right = args
    if numeric_type(dtype).is_float and is_same(left, right):
        return _times_zero(left, dtype)
    return topi.subtract(left, right)


def _quotient(args: Sequence[Expression], attrs: Any, dtype: str) -> Expression:
    """A quotient by a literal zero, which TVM refuses, is a product with infinity."""
    left, right = args
    if not _is_zero(right):
        return _by_any_divisor("divide")(args, attrs, dtype)
    return left * tirx.const(copysign(inf, float(right.value)), dtype)


def _is_zero(value: Expression) -> bool:
    return isinstance(value, tirx.FloatImm) and float(value.value) == 0.0


def _times_zero(value: Expression, dtype: str) -> Expression:
    """A product with minus zero, which TVM does not know for one, turned around."""
    bits = numeric_type(dtype).bytes * 8
    return -(value * tirx.reinterpret(dtype, tirx.const(-(1 << (bits - 1)), f"int{bits}")))


def _exact_remainder(left: Expression, right: Expression, dtype: str) -> Expression:
    """C's `fmod` of floats, which has no rounding. TVM's analysis takes its own for one of whole numbers."""
    return tirx.call_pure_extern(dtype, "fmodf" if dtype == "float32" else "fmod", left, right)


def _remainder(left: Expression, right: Expression, dtype: str) -> Expression:
    """The remainder of floats with the sign of the divisor, from the exact one with the sign of the dividend.

    TVM's own, `a - floor(a / b) * b`, is 0 for 1 and 0.1, as their quotient is rounded to 10.
    """

    def of(a: Expression, b: Expression) -> Expression:
        return bind(
            _exact_remainder(a, b, dtype), lambda rest: tirx.Select(_apart(rest, b, dtype), rest + b, rest)
        )

    return bind(left, lambda a: bind(right, lambda b: of(a, b)))


def _floored_quotient(left: Expression, right: Expression, dtype: str) -> Expression:
    """The quotient of floats rounded down, by the exact remainder: PyTorch's `div_floor_floating`.

    Source: PyTorch 2.13, c10/util/generic_math.h, which follows CPython's `float_divmod`. A quotient that is
    rounded before it is rounded down may be one too large: 1 / 0.1 is 9.
    """
    if _is_zero(right):
        return _quotient((left, right), {}, dtype)
    zero = tirx.const(0, dtype)

    def of(a: Expression, b: Expression) -> Expression:
        def from_remainder(rest: Expression) -> Expression:
            whole = (a - rest) / b
            return bind(tirx.Select(_apart(rest, b, dtype), whole - tirx.const(1, dtype), whole), nearest)

        def nearest(whole: Expression) -> Expression:
            down, half = tirx.floor(whole), tirx.const(0.5, dtype)
            down = bind(down, lambda d: tirx.Select(whole - d > half, d + tirx.const(1, dtype), d))
            # A zero with the sign of the quotient.
            return tirx.Select(compared("equal", whole, zero), tirx.trunc(a / b * half), down)

        made = bind(_exact_remainder(a, b, dtype), from_remainder)
        return tirx.Select(compared("equal", b, zero), a / b, made)

    return bind(left, lambda a: bind(right, lambda b: of(a, b)))


def _apart(rest: Expression, divisor: Expression, dtype: str) -> Expression:
    """Whether a remainder is not zero and has another sign than the divisor."""
    zero = tirx.const(0, dtype)
    below = [compared("less", one, zero) for one in (rest, divisor)]
    above = [compared("greater", one, zero) for one in (rest, divisor)]
    return tirx.Or(tirx.And(below[0], above[1]), tirx.And(above[0], below[1]))


def _by_any_divisor(
    name: str, of_floats: Callable[[Expression, Expression, str], Expression] | None = None
) -> ElementExpression:
    """A quotient or remainder of integers by any number: processors differ in what they do with zero.

    x86 raises a signal, also where the smallest number is divided by -1, whose quotient it cannot hold. Here
    the quotient by zero is zero, as Arm has it, and the remainder too; the smallest number stays itself.
    """
    function = getattr(topi, name)

    def expression(args: Sequence[Expression], attrs: Any, dtype: str) -> Expression:
        left, right = args
        if not numeric_type(dtype).is_integer:
            return of_floats(left, right, dtype) if of_floats else function(left, right)
        zero, one = tirx.const(0, dtype), tirx.const(1, dtype)
        if isinstance(right, tirx.IntImm):
            return function(left, right) if int(right.value) else zero
        signed = dtype.startswith("int")

        def guarded(a: Expression, b: Expression) -> Expression:
            none = compared("equal", b, zero)
            minus = compared("equal", b, tirx.const(-1, dtype)) if signed else none
            found = function(a, tirx.Select(tirx.Or(none, minus), one, b))
            if name in ("floor_mod", "mod"):
                return found
            found = tirx.Select(minus, zero - a, found) if signed else found
            return tirx.Select(none, zero, found)

        return bind(left, lambda a: bind(right, lambda b: guarded(a, b)))

    return expression


def _binary(
    name: str,
    fold: Callable[..., Any] | None = None,
    simplify: Simplification | None = None,
    recognise: tuple[Recogniser, ...] = (),
    expression: ElementExpression | None = None,
) -> OpSpec:
    function = getattr(topi, name)
    return elementwise(
        name,
        expression or (lambda args, attrs, dtype: function(args[0], args[1])),
        fold=fold,
        simplify=simplify,
        recognise=recognise,
    )


SPECS: tuple[OpSpec, ...] = (
    _binary("add", np.add, _neutral),
    _binary("subtract", np.subtract, _subtract, expression=_difference),
    _binary("multiply", np.multiply, _scale, expression=_product),
    _binary("divide", _divided, _scale, expression=_quotient),
    _binary(
        "floor_divide",
        _unless_by_zero(np.floor_divide),
        expression=_by_any_divisor("floor_divide", _floored_quotient),
    ),
    _binary("floor_mod", _unless_by_zero(np.mod), expression=_by_any_divisor("floor_mod", _remainder)),
    _binary("mod", expression=_by_any_divisor("mod", _exact_remainder)),
    replace(_binary("power", np.power, recognise=(_small_power,)), read={"power": _read_power}),
    elementwise(
        "reciprocal",
        lambda args, attrs, dtype: number(1, dtype) / args[0],
        read={},
        fold=lambda x: 1.0 / x,
    ),
)
