"""Maximum, minimum, and bounds by numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tvm import tirx, topi

from host.lowering.builder import Builder
from host.lowering.expressions import math
from host.lowering.expressions.stage import Expression
from host.lowering.graph import Node, Value
from host.lowering.ops.forms import ElementExpression, elementwise, number, read_as
from host.lowering.reader.call import OperatorCall
from host.lowering.spec import OpSpec
from host.lowering.types import numeric_type
from host.tensor_ir.opaque import opaque

_INFINITY = float("inf")


def _read_clip(builder: Builder, call: OperatorCall) -> Value:
    return builder.unary("clip", call.value(0), low=call.number(1), high=call.number(2))


def _one_clip(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | None:
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


def _clip(args: Sequence[Expression], attrs: Mapping[str, Any], dtype: str) -> Expression:
    value = args[0]
    if attrs["high"] != _INFINITY:
        value = tirx.min(value, number(attrs["high"], dtype))
    if attrs["low"] != -_INFINITY:
        value = tirx.max(value, number(attrs["low"], dtype))
    return value


def _of_two(name: str) -> ElementExpression:
    """The larger or smaller of two numbers, NaN if either is; TVM's own is that for the second one alone."""
    function = getattr(topi, name)

    def expression(args: Sequence[Expression], attrs: Mapping[str, Any], dtype: str) -> Expression:
        first, second = args
        if not numeric_type(dtype).is_float:
            return function(first, second)
        return math.bind(first, lambda v: tirx.Select(opaque(tirx.isnan(v)), v, function(v, second)))

    return expression


SPECS: tuple[OpSpec, ...] = (
    elementwise(
        "maximum",
        _of_two("maximum"),
        fold=np.maximum,
        simplify=_one_clip,
    ),
    elementwise(
        "minimum",
        _of_two("minimum"),
        fold=np.minimum,
        simplify=_one_clip,
    ),
    replace(
        elementwise("clip", _clip, read={"clip": _read_clip}, simplify=_one_clip),
        fold=lambda inputs, attrs, shape, dtype: np.clip(inputs[0], attrs["low"], attrs["high"]),
    ),
    elementwise(
        "relu",
        lambda args, attrs, dtype: tirx.max(args[0], number(0, dtype)),
        read={"nn.relu": read_as("relu")},
        fold=lambda x: np.maximum(x, 0),
        simplify=_one_clip,
    ),
)
