"""Constant folding: what an operation of the graph makes of numpy arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from host.lowering.graph import Shape

_Function = Callable[..., Any]

_UNARY: dict[str, _Function] = {
    "abs": np.abs,
    "ceil": np.ceil,
    "cos": np.cos,
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
    "exp": np.exp,
    "floor": np.floor,
    "isfinite": np.isfinite,
    "isinf": np.isinf,
    "isnan": np.isnan,
    "log": np.log,
    "logical_not": np.logical_not,
    "negative": np.negative,
    "reciprocal": lambda x: 1.0 / x,
    "relu": lambda x: np.maximum(x, 0),
    "round": np.round,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x)),
    "sign": np.sign,
    "sin": np.sin,
    "sqrt": np.sqrt,
    "square": np.square,
    "tanh": np.tanh,
}
_BINARY: dict[str, _Function] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "power": np.power,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "floor_divide": np.floor_divide,
    "floor_mod": np.mod,
}


def _divide(left: np.ndarray, right: np.ndarray) -> Any:
    if np.issubdtype(left.dtype, np.floating):
        return np.divide(left, right)
    # Integers divide towards zero, as TVM's do.
    return (np.sign(left) * np.sign(right)) * (np.abs(left) // np.abs(right))


def _take(data: np.ndarray, indices: np.ndarray, axis: int) -> np.ndarray:
    size = data.shape[axis]
    wrapped = np.where(indices < 0, indices + size, indices)
    return np.take(data, np.clip(wrapped, 0, size - 1), axis=axis)


def _slice(data: np.ndarray, begin: Shape, strides: Shape, shape: Shape) -> np.ndarray:
    for axis, (first, step, count) in enumerate(zip(begin, strides, shape, strict=True)):
        data = np.take(data, first + step * np.arange(count), axis=axis)
    return data


def evaluate(
    op: str,
    inputs: Sequence[np.ndarray],
    attrs: dict[str, Any],
    outputs: Sequence[tuple[Shape, str]],
) -> tuple[np.ndarray, ...] | None:
    """The outputs of `op` on constants, or None if it is not folded.

    Args:
        op: operation name.
        inputs: constants.
        attrs: attributes of the node.
        outputs: shape and dtype of each output.
    """
    shape, dtype = outputs[0]
    with np.errstate(all="ignore"):
        result = _compute(op, inputs, attrs, shape, dtype)
    if result is None:
        return None
    return (np.asarray(np.broadcast_to(np.asarray(result, dtype=dtype), shape), order="C"),)


def _compute(op: str, inputs: Sequence[np.ndarray], attrs: dict[str, Any], shape: Shape, dtype: str) -> Any:
    if op in _UNARY:
        return _UNARY[op](inputs[0])
    if op in _BINARY:
        # Integer division by zero is left to the device, whatever it does.
        if op.startswith("floor_") and not np.all(inputs[1]):
            return None
        return _BINARY[op](*inputs)
    if op == "divide":
        integer_zero = not np.issubdtype(inputs[0].dtype, np.floating) and not np.all(inputs[1])
        return None if integer_zero else _divide(*inputs)
    if op in ("cast", "broadcast"):
        return inputs[0].astype(dtype)
    if op == "where":
        return np.where(inputs[0].astype(bool), inputs[1], inputs[2])
    if op == "clip":
        return np.clip(inputs[0], attrs["low"], attrs["high"])
    if op == "reshape":
        return inputs[0].reshape(shape)
    if op == "transpose":
        return np.transpose(inputs[0], attrs["axes"])
    if op == "concat":
        return np.concatenate(inputs, axis=attrs["axis"])
    if op == "slice":
        return _slice(inputs[0], attrs["begin"], attrs["strides"], shape)
    if op == "pad":
        widths = tuple(zip(attrs["before"], attrs["after"], strict=True))
        return np.pad(inputs[0], widths, constant_values=attrs["value"])
    if op == "take":
        return _take(inputs[0], inputs[1], attrs["axis"])
    if op in ("sum", "mean", "max", "min", "prod"):
        axes = tuple(attrs["axes"])
        return getattr(np, op)(inputs[0], axis=axes, keepdims=attrs["keepdims"])
    if op == "cumsum":
        return np.cumsum(inputs[0], axis=attrs["axis"], dtype=dtype)
    if op == "relax.index_tensor":
        return inputs[0][tuple(inputs[1:])]
    return None
