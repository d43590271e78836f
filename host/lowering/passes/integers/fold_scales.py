"""What follows a product in integers: a bias in int32, and one multiplication for all scales.

    float(sum) * s + b                  = float(sum + b / s) * s     where b / s is a whole number
    quantize(f(float(sum) * s), t, z)   = quantize(f'(float(sum) * (s / t)), 1, z)

with f made of relu and clip, which scale with their argument. Both are how integer runtimes compute; against
the product of fp32 numbers a result differs by rounding only, at most by one unit of the quantised scale.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from host.lowering.builder import Builder
from host.lowering.graph import Graph, Node, Value, constant, read_once
from host.lowering.rebuild import rebuild

# fp32 holds whole numbers up to here, and a quotient near them shows whether it is one.
_LARGEST = float(1 << 22)


def fold_scales(graph: Graph) -> Graph:
    """An equal graph with fewer operations behind products in integers."""
    private = read_once(graph)

    def rule(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
        result = None
        if node.op == "add" and any(private(value) for value in node.inputs):
            result = _bias(builder, inputs) or _shift(builder, inputs)
        elif node.op == "quantize" and private(node.inputs[0]):
            result = _quantize(builder, node, inputs, private)
        return builder.copy(node, inputs) if result is None else result

    return rebuild(graph, rule)


def _scaled_sum(value: Value) -> tuple[Value, np.ndarray] | None:
    """The sum and its constant factors where a value is float(sum) * factors."""
    node = value.producer
    if node is None or node.op != "multiply":
        return None
    for part, factors in (node.inputs, node.inputs[::-1]):
        cast = part.producer
        if factors.data is None or cast is None or cast.op != "cast":
            continue
        total = cast.inputs[0]
        if total.dtype == "int32" and total.shape == value.shape and (factors.data != 0).all():
            return total, factors.data
    return None


def _bias(builder: Builder, inputs: tuple[Value, ...]) -> Value | None:
    for value, shift in (inputs, inputs[::-1]):
        found = _scaled_sum(value)
        if found is None or shift.data is None or shift.dtype != "float32":
            continue
        total, factors = found
        exact = shift.data.astype(np.float64) / factors
        whole = np.rint(exact)
        if exact.ndim > len(total.shape) or np.abs(exact).max(initial=0) > _LARGEST:
            continue
        if (np.abs(exact - whole) <= np.maximum(1e-3, np.abs(exact) * 2.0**-22)).all():
            inputs = (total, constant(whole.astype(np.int32)))
            biased = _shift(builder, inputs) or builder.binary("add", *inputs)
            return builder.binary("multiply", builder.cast(biased, "float32"), constant(factors))
    return None


def _shift(builder: Builder, inputs: tuple[Value, ...]) -> Value | None:
    """(x + a) + b = x + (a + b) in int32, which wraps around either way."""
    for value, shift in (inputs, inputs[::-1]):
        node = value.producer
        if shift.data is None or value.dtype != "int32" or node is None or node.op != "add":
            continue
        for inner, first in (node.inputs, node.inputs[::-1]):
            if first.data is not None and inner.shape == value.shape:
                return builder.binary("add", inner, constant(first.data + shift.data))
    return None


def saturates(zero: Value, low: float, high: float, dtype: str) -> bool:
    """Whether quantisation bounds its result as narrowly as `low` and `high`, in units of the result."""
    point, limits = zero.scalar(), np.iinfo(dtype)
    return point is not None and point + low <= limits.min and point + high >= limits.max


def _quantize(
    builder: Builder, node: Node, inputs: tuple[Value, ...], private: Callable[[Value], bool]
) -> Value | None:
    """With one factor; what is between the sum and the quantisation has no other reader."""
    value, scale, zero = inputs
    before = node.inputs[0]
    step = scale.scalar()
    if step is None or scale.dtype != "float32":
        return None
    between: list[Node] = []
    while value.producer is not None and value.producer.op in ("relu", "clip"):
        between.append(value.producer)
        value = value.producer.inputs[0]
        assert before.producer is not None
        before = before.producer.inputs[0]
        if not private(before):
            return None
    found = _scaled_sum(value)
    if found is None:
        return None
    total, factors = found
    ratio = (factors / np.float32(step)).astype(np.float32)
    result = builder.binary("multiply", builder.cast(total, "float32"), constant(ratio))
    for inner in reversed(between):
        bounds = inner.attrs if inner.op == "clip" else {"low": 0.0, "high": float("inf")}
        low, high = bounds["low"] / step, bounds["high"] / step
        if not saturates(zero, low, high, node.output.dtype):
            result = builder.unary("clip", result, low=low, high=high)
    return builder.one(
        "quantize", [result, constant(1.0, "float32"), zero], node.output.shape, node.output.dtype
    )
