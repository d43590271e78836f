"""Operators with steps, drawn only where their input is the same in every engine."""

from __future__ import annotations

import numpy as np
from onnx import helper

from tests.fuzz.random_models.draw import FLOATS, Draw, Operator, Value


def _compare(d: Draw, x: Value) -> None:
    d.need(x.exact and x.dtype in ("float32", "int64", "int32"))
    d.add(d.pick("Greater", "Less", "Equal", "GreaterOrEqual", "LessOrEqual"), [x.name, d.other(x)])


def _cast(d: Draw, x: Value) -> None:
    to = d.pick("float32", "int32", "int64", "float64", "bool", "uint8")
    d.need(to != x.dtype and (x.exact or to in FLOATS))
    # Negative numbers as bytes are left to each engine.
    d.need(to != "uint8" or x.dtype == "bool")
    d.add("Cast", [x.name], to=helper.np_dtype_to_tensor_dtype(np.dtype(to)))


def _position(d: Draw, x: Value) -> None:
    d.need(x.exact and x.rank > 0 and x.dtype in ("float32", "int32"))
    d.add(d.pick("ArgMax", "ArgMin"), [x.name], axis=d.axis(x), keepdims=d.pick(0, 1))


def _top(d: Draw, x: Value) -> None:
    d.need(x.exact and x.rank > 0 and x.dtype == "float32")
    axis = d.axis(x)
    count = d.rng.randint(1, x.shape[axis])
    d.add("TopK", [x.name, d.constant([count])], 2, axis=axis, largest=d.pick(0, 1))


def _quantise(d: Draw, x: Value) -> None:
    d.need(x.dtype == "float32" and x.exact)
    kind = d.pick("uint8", "int8")
    scale, zero = d.constant(np.array(0.03, np.float32)), d.constant(np.array(3, kind))
    (whole,) = d.add("QuantizeLinear", [x.name, scale, zero])
    d.add("DequantizeLinear", [whole, scale, zero])


EXACT: tuple[Operator, ...] = (_compare, _cast, _position, _top, _quantise)
