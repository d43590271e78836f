"""Activations with parameters, SELU and the sigmoid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tvm import tirx

from host.lowering.builder import Builder
from host.lowering.expressions import math
from host.lowering.expressions.stage import Expression
from host.lowering.graph import Node, Value, normalise_axis
from host.lowering.ops.forms import elementwise, number, read_as, single_or
from host.lowering.reader.call import OperatorCall
from host.lowering.spec import OpSpec


def _read_leaky_relu(builder: Builder, call: OperatorCall) -> Value:
    return builder.unary("leaky_relu", call.value(0), alpha=float(call.attrs.alpha))


def _read_prelu(builder: Builder, call: OperatorCall) -> Value:
    data, slope = call.value(0), call.value(1)
    axis = normalise_axis(int(call.attrs.axis), len(data.shape))
    shape = [1] * len(data.shape)
    shape[axis] = slope.size
    return builder.one("prelu", [data, builder.reshape(slope, shape)], call.shape, call.dtype)


def _read_softplus(builder: Builder, call: OperatorCall) -> Value:
    beta, threshold = float(call.attrs.beta), float(call.attrs.threshold)
    return builder.unary("softplus", call.value(0), beta=beta, threshold=threshold)


def _leaky_relu(args: Sequence[Expression], attrs: Mapping[str, Any], dtype: str) -> Expression:
    return math.bind(
        args[0], lambda v: tirx.Select(v > number(0, dtype), v, v * number(attrs["alpha"], dtype))
    )


def _prelu(args: Sequence[Expression], attrs: Mapping[str, Any], dtype: str) -> Expression:
    return math.bind(args[0], lambda v: tirx.Select(v > number(0, dtype), v, v * args[1]))


def _selu(args: Sequence[Expression], attrs: Mapping[str, Any], dtype: str) -> Expression:
    scale, alpha = 1.0507009873554804934, 1.6732632423543772848
    exponential = math.exp if dtype == "float32" else tirx.exp

    def body(v: Expression) -> Expression:
        negative = number(scale * alpha, dtype) * (exponential(v) - number(1, dtype))
        return tirx.Select(v > number(0, dtype), v * number(scale, dtype), negative)

    return math.bind(args[0], body)


def _softplus(args: Sequence[Expression], attrs: Mapping[str, Any], dtype: str) -> Expression:
    beta, threshold = number(attrs["beta"], dtype), number(attrs["threshold"], dtype)
    exponential, logarithm = (math.exp, math.log) if dtype == "float32" else (tirx.exp, tirx.log)

    def body(v: Expression) -> Expression:
        # max(x, 0) + log(1 + exp(-|x|)) does not overflow.
        soft = tirx.max(v * beta, number(0, dtype)) + logarithm(
            number(1, dtype) + exponential(-tirx.abs(v * beta))
        )
        return tirx.Select(v * beta > threshold, v, soft / beta)

    return math.bind(args[0], body)


def _sigmoid(args: Sequence[Expression], attrs: Mapping[str, Any], dtype: str) -> Expression:
    one = number(1, dtype)
    return one / (one + tirx.exp(-args[0]))


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


SPECS: tuple[OpSpec, ...] = (
    elementwise("leaky_relu", _leaky_relu, read={"nn.leakyrelu": _read_leaky_relu}),
    elementwise("prelu", _prelu, read={"nn.prelu": _read_prelu}),
    elementwise("selu", _selu, read={"nn.selu": read_as("selu")}),
    elementwise(
        "sigmoid",
        single_or(math.sigmoid, _sigmoid),
        fold=lambda x: 1.0 / (1.0 + np.exp(-x)),
        recognise=(_sigmoid_as_quotient,),
    ),
    elementwise("softplus", _softplus, read={"nn.softplus": _read_softplus}),
)
