"""Rewrites that hold in any layout: padding into convolutions, minimum of maximum into clip."""

from __future__ import annotations

import numpy as np

from host.lowering.builder import Builder
from host.lowering.graph import Graph, Node, Value, constant
from host.lowering.operators import ELEMENTWISE, REDUCTIONS
from host.lowering.rebuild import rebuild

_INFINITY = float("inf")


def simplify(graph: Graph) -> Graph:
    """An equal graph with fewer operations."""
    return rebuild(graph, _simplify)


def _simplify(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
    rule = _RULES.get(node.op)
    if node.op in ELEMENTWISE:
        inputs = tuple(_trimmed(builder, value) for value in inputs)
    result = rule(builder, node, inputs) if rule else None
    return builder.copy(node, inputs) if result is None else result


def _trimmed(builder: Builder, value: Value) -> Value:
    """Constants broadcast without leading dimensions of size 1, which makes more functions equal."""
    if not value.is_constant or not value.shape or value.shape[0] != 1:
        return value
    leading = next((axis for axis, size in enumerate(value.shape) if size != 1), len(value.shape))
    return builder.reshape(value, value.shape[leading:])


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
    """0 - x is -x."""
    left, right = inputs
    if left.scalar() == 0.0 and right.is_float and right.shape == node.output.shape:
        return builder.unary("negative", right)
    return _neutral(builder, node, inputs)


def _reduction(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | None:
    """Reductions keep their dimensions and leave out those of size 1; a view gives the wanted shape."""
    shape = inputs[0].shape
    axes = tuple(axis for axis in node.attrs["axes"] if shape[axis] != 1)
    if node.attrs["keepdims"] and axes == node.attrs["axes"]:
        return None
    if not axes:
        return None if node.op == "variance" else builder.reshape(inputs[0], node.output.shape)
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    result = builder.one(node.op, inputs, kept, node.output.dtype, axes=axes, keepdims=True)
    return builder.reshape(result, node.output.shape)


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


def _clip(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | None:
    """A bound by a scalar is a clip, and a clip of a clip is one clip."""
    value, low, high = inputs[0], -_INFINITY, _INFINITY
    if not value.is_float and node.op != "clip":
        return None
    if node.op == "clip":
        low, high = node.attrs["low"], node.attrs["high"]
    elif node.op == "relu":
        low = 0.0
    else:
        value, bound = (inputs[1], inputs[0]) if inputs[0].is_constant else inputs
        number = bound.scalar()
        # NaN as a bound poisons every element, which a clip does not.
        if number is None or number != number or value.shape != node.output.shape:
            return None
        low, high = (number, high) if node.op == "maximum" else (low, number)
    inner = value.producer
    if inner is not None and inner.op in ("clip", "relu"):
        inner_low, inner_high = inner.attrs.get("low", 0.0), inner.attrs.get("high", _INFINITY)
        low, high = min(max(inner_low, low), high), min(max(inner_high, low), high)
        value = inner.inputs[0]
    elif node.op in ("clip", "relu"):
        return None
    if (low, high) == (0.0, _INFINITY):
        return builder.unary("relu", value)
    return builder.unary("clip", value, low=low, high=high)


def _convolution(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | None:
    """Zero padding before a convolution is the convolution's own."""
    data = inputs[0]
    order = None
    pad = data.producer
    if pad is not None and pad.op == "transpose":
        order, pad = pad.attrs["axes"], pad.inputs[0].producer
    if pad is None or pad.op != "pad" or pad.attrs["value"] != 0.0:
        return None
    before, after, source = pad.attrs["before"], pad.attrs["after"], pad.inputs[0]
    if order is not None:
        before, after = tuple(before[a] for a in order), tuple(after[a] for a in order)
        source = builder.transpose(source, order)
    if before[0] or after[0] or before[-1] or after[-1]:
        return None
    spatial = len(before) - 2
    padding = node.attrs["padding"]
    merged = tuple(p + b for p, b in zip(padding, (*before[1:-1], *after[1:-1]), strict=True))
    assert len(padding) == 2 * spatial
    attrs = {**node.attrs, "padding": merged}
    return builder.one("conv", [source, inputs[1]], node.output.shape, node.output.dtype, **attrs)


_RULES = {
    "add": _neutral,
    "subtract": _subtract,
    "multiply": _scale,
    "divide": _scale,
    "maximum": _clip,
    "minimum": _clip,
    "clip": _clip,
    "relu": _clip,
    "conv": _convolution,
    **dict.fromkeys(REDUCTIONS, _reduction),
}
