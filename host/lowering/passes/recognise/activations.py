"""GELU in both forms, SiLU and hard swish."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import numpy as np

from host.lowering.builder import Builder
from host.lowering.graph import Node, Value, constant
from host.lowering.passes.recognise.algebra import close, polynomial, product

_TANH_FACTOR = 0.7978845608028654
_TANH_CUBIC = _TANH_FACTOR * 0.044715


def _gated(builder: Builder, node: Node) -> Value | None:
    """X times a gate of x: GELU, SiLU, hard swish."""
    if node.op not in ("multiply", "divide") or not node.output.is_float:
        return None
    coefficient, factors = product(node.output)
    if len(factors) != 2 or any(factor.shape != node.output.shape for factor in factors):
        return None
    for x, gate in (factors, factors[::-1]):
        match = _gate(x, gate)
        if match is not None:
            op, scale = match
            return _scaled(builder, builder.unary(op, x), coefficient * scale)
    return None


def _gate(x: Value, gate: Value) -> tuple[str, float] | None:
    """The activation whose value is x * gate * (1 / scale), and that scale."""
    producer = gate.producer
    if producer is None:
        return None
    if producer.op == "add":
        return _one_plus(x, producer)
    if producer.op == "sigmoid" and producer.inputs[0] is x:
        return "silu", 1.0
    if producer.op == "clip":
        return _hard_gate(x, producer)
    if producer.op == "hard_sigmoid" and close(
        {1: producer.attrs["alpha"], 0: producer.attrs["beta"]}, {1: 1 / 6, 0: 0.5}
    ):
        return "hard_swish", 1.0
    return None


def _one_plus(x: Value, node: Node) -> tuple[str, float] | None:
    """A gate c (1 + erf(x / sqrt 2)) or c (1 + tanh(...)) makes 2 c times a GELU."""
    for one, other in (node.inputs, node.inputs[::-1]):
        c = one.scalar()
        coefficient, factors = product(other)
        inner = factors[0].producer if len(factors) == 1 else None
        if not c or inner is None or abs(coefficient - c) > 1e-6 * abs(c):
            continue
        if inner.op == "erf" and close(polynomial(inner.inputs[0], x), {1: sqrt(0.5)}):
            return "gelu", 2.0 * c
        wanted = {1: _TANH_FACTOR, 3: _TANH_CUBIC}
        if inner.op == "tanh" and close(polynomial(inner.inputs[0], x), wanted, 1e-4):
            return "gelu_tanh", 2.0 * c
    return None


def _hard_gate(x: Value, clip: Node) -> tuple[str, float] | None:
    """X clip(a x + b, 0, h) with a : b : h = 1 : 3 : 6."""
    low, high = clip.attrs["low"], clip.attrs["high"]
    if low != 0.0 or not 0.0 < high < float("inf"):
        return None
    if close(polynomial(clip.inputs[0], x), {1: high / 6, 0: high / 2}):
        return "hard_swish", high
    return None


def _silu_as_quotient(builder: Builder, node: Node) -> Value | None:
    """X / (1 + exp(-x))."""
    if node.op != "divide":
        return None
    x, below = node.inputs
    if below.producer is None or below.producer.op != "add" or x.shape != below.shape:
        return None
    for one, other in (below.producer.inputs, below.producer.inputs[::-1]):
        inner = other.producer
        if one.scalar() != 1.0 or inner is None or inner.op != "exp":
            continue
        if close(polynomial(inner.inputs[0], x), {1: -1.0}):
            return builder.unary("silu", x)
    return None


def _sigmoid_as_quotient(builder: Builder, node: Node) -> Value | None:
    """1 / (1 + exp(-x))."""
    if node.op == "reciprocal":
        below = node.inputs[0]
    elif node.op == "divide" and node.inputs[0].scalar() == 1.0:
        below = node.inputs[1]
    else:
        return None
    if below.producer is None or below.producer.op != "add":
        return None
    for one, other in (below.producer.inputs, below.producer.inputs[::-1]):
        inner = other.producer
        if one.scalar() != 1.0 or inner is None or inner.op != "exp":
            continue
        negated = inner.inputs[0].producer
        if negated is not None and negated.op == "negative":
            return builder.unary("sigmoid", negated.inputs[0])
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


def _scaled(builder: Builder, value: Value, scale: float) -> Value:
    if abs(scale - 1.0) < 1e-6:
        return value
    return builder.binary("multiply", value, constant(np.asarray(scale, dtype=value.dtype)))


RULES: tuple[Callable[[Builder, Node], Value | None], ...] = (
    _small_power,
    _gated,
    _silu_as_quotient,
    _sigmoid_as_quotient,
)
