"""Activations that multiply their argument with a gate of it: GELU in both forms, SiLU and hard swish."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any

import numpy as np
from tvm import tirx

from host.lowering.builder import Builder
from host.lowering.expressions import math
from host.lowering.expressions.polynomials import close, polynomial, product
from host.lowering.expressions.stage import Expression
from host.lowering.graph import Node, Value, constant
from host.lowering.ops.forms import elementwise, number, read_as, single_or
from host.lowering.spec import OpSpec

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


def _scaled(builder: Builder, value: Value, scale: float) -> Value:
    if abs(scale - 1.0) < 1e-6:
        return value
    return builder.binary("multiply", value, constant(np.asarray(scale, dtype=value.dtype)))


def _silu(args: Sequence[Expression], attrs: Mapping[str, Any], dtype: str) -> Expression:
    return math.bind(args[0], lambda v: v / (number(1, dtype) + tirx.exp(-v)))


def _gelu(args: Sequence[Expression], attrs: Mapping[str, Any], dtype: str) -> Expression:
    one, half, root = number(1, dtype), number(0.5, dtype), number(sqrt(0.5), dtype)
    return math.bind(args[0], lambda v: half * v * (one + tirx.erf(v * root)))


def _gelu_tanh(args: Sequence[Expression], attrs: Mapping[str, Any], dtype: str) -> Expression:
    one, half = number(1, dtype), number(0.5, dtype)
    factor, cubic = number(_TANH_FACTOR, dtype), number(0.044715, dtype)
    return math.bind(args[0], lambda v: half * v * (one + tirx.tanh(factor * (v + cubic * v * v * v))))


def _hard_swish(args: Sequence[Expression], attrs: Mapping[str, Any], dtype: str) -> Expression:
    def body(v: Expression) -> Expression:
        gate = tirx.max(tirx.min(v + number(3, dtype), number(6, dtype)), number(0, dtype))
        return v * gate * number(1 / 6, dtype)

    return math.bind(args[0], body)


SPECS: tuple[OpSpec, ...] = (
    elementwise("gelu", single_or(math.gelu, _gelu), read={"nn.gelu": read_as("gelu")}, recognise=(_gated,)),
    elementwise(
        "gelu_tanh", single_or(math.gelu_tanh, _gelu_tanh), read={"nn.gelu_tanh": read_as("gelu_tanh")}
    ),
    elementwise(
        "silu",
        single_or(math.silu, _silu),
        read={"nn.silu": read_as("silu")},
        recognise=(_silu_as_quotient,),
    ),
    elementwise("hard_swish", _hard_swish, read={}),
)
