"""Element-wise arithmetic of two operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import topi

from host.lowering.builder import Builder
from host.lowering.graph import Node, Value, constant
from host.lowering.ops.forms import elementwise, integer, number
from host.lowering.spec import OpSpec, Recogniser, Simplification


def _neutral(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | None:
    """X + 0, x - 0, x * 1, x / 1."""
    number = 0.0 if node.op in ("add", "subtract") else 1.0
    left, right = inputs
    if right.scalar() == number and left.shape == node.output.shape:
        return left
    if node.op in ("add", "multiply") and left.scalar() == number and right.shape == node.output.shape:
        return right
    return None


def _subtract(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | None:
    """`0 - x` becomes a negation; an operation that changes nothing is removed."""
    left, right = inputs
    if left.scalar() == 0.0 and right.is_float and right.shape == node.output.shape:
        return builder.unary("negative", right)
    return _neutral(builder, node, inputs)


def _scale(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | None:
    """Multiplications and divisions by numbers become one multiplication, or none."""
    result = _neutral(builder, node, inputs)
    scaled = None if result is not None else _by_number(node.op, inputs)
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
    # Integers divide towards zero, as TVM's do.
    return (np.sign(left) * np.sign(right)) * (np.abs(left) // np.abs(right))


def _unless_by_zero(function: Callable[..., Any]) -> Callable[..., Any]:
    """Division by zero is left to the device, whatever it does."""
    return lambda left, right: function(left, right) if np.all(right) else None


def _binary(
    name: str,
    fold: Callable[..., Any] | None = None,
    simplify: Simplification | None = None,
    recognise: tuple[Recogniser, ...] = (),
) -> OpSpec:
    function = getattr(topi, name)
    return elementwise(
        name,
        lambda args, attrs, dtype: function(args[0], args[1]),
        fold=fold,
        simplify=simplify,
        recognise=recognise,
    )


SPECS: tuple[OpSpec, ...] = (
    _binary("add", np.add, _neutral),
    _binary("subtract", np.subtract, _subtract),
    _binary("multiply", np.multiply, _scale),
    _binary("divide", _divided, _scale),
    _binary("floor_divide", _unless_by_zero(np.floor_divide)),
    _binary("floor_mod", _unless_by_zero(np.mod)),
    _binary("mod"),
    _binary("power", np.power, recognise=(_small_power,)),
    elementwise(
        "reciprocal",
        lambda args, attrs, dtype: number(1, dtype) / args[0],
        read={},
        fold=lambda x: 1.0 / x,
    ),
)
