"""What follows from one byte alone becomes a table of 256 bytes.

A quantised file has an activation as dequantize, the function in floats, and quantize: between two bytes are
an exponential or an error function, a division, and often a product with the same byte. All of it depends on
that byte alone, so it is computed here for all 256 of them, and a processor with an instruction that chooses
among many bytes takes six or seven operations for a vector. Without such an instruction nothing is changed.

The numbers are those of numpy in single precision, which are nearer to the exact ones than the polynomials
of the device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from host.lowering.builder import Builder
from host.lowering.graph import Graph, Node, Value, constant
from host.lowering.passes.integers.join_bytes import SIGN
from host.lowering.rebuild import rebuild
from targets import HardwareModel

BYTE_TABLE = "byte_table"
_BYTES = ("int8", "uint8")
# Operations of a vector that are counted for each operation of the graph: functions in series, conversions of
# bytes with their arithmetic, and all else.
_FUNCTIONS = frozenset(
    {"divide", "reciprocal", "sqrt", "rsqrt", "power", "exp", "log", "erf", "tanh", "sigmoid"}
    | {"softplus", "selu", "silu", "gelu", "gelu_tanh"}
)
_CONVERSIONS = frozenset({"quantize", "dequantize", "add_bytes", "multiply_bytes"})
_OF_FUNCTION, _OF_CONVERSION = 12, 3
# Those of a table, from which on it pays: another scale for the same numbers takes as many.
_OF_TABLE = 8

_Arrays = Sequence[np.ndarray]
_Evaluation = Callable[[_Arrays, Mapping[str, Any], str], np.ndarray]


@dataclass(frozen=True, eq=False)
class _Known:
    """A value that follows from one byte.

    Attributes:
        root: the byte.
        numbers: of the value, for the bytes 0 to 255.
        operations: that compute it.
    """

    root: Value
    numbers: np.ndarray
    operations: int


def tabulate_bytes(graph: Graph, hardware: HardwareModel) -> Graph:
    """An equal graph in which costly functions of one byte are tables.

    Args:
        graph: whose layouts are chosen.
        hardware: the processor; without `byte_tables` the graph stays as it is.
    """
    if not hardware.byte_tables:
        return graph
    found: dict[Value, _Known] = {}
    # Roots are values of the graph as given.
    new: dict[Value, Value] = {}

    def rule(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
        known = _followed(node, found)
        if known is not None:
            found[node.output] = known
        if known is None or node.output.dtype not in _BYTES or known.operations <= _OF_TABLE:
            made = builder.copy(node, inputs)
        else:
            operands = [new.get(known.root, known.root), constant(known.numbers)]
            made = (builder.one(BYTE_TABLE, operands, node.output.shape, node.output.dtype),)
        new.update(zip(node.outputs, made, strict=True))
        return made

    return rebuild(graph, rule)


def _followed(node: Node, found: Mapping[Value, _Known]) -> _Known | None:
    """What a node gives, where it follows from one byte."""
    if len(node.outputs) != 1 or not node.spec.is_elementwise:
        return None
    evaluate = _EVALUATIONS.get(node.op) or _fold_of(node)
    if evaluate is None:
        return None
    parts: dict[Value, _Known | None] = {}
    for value in node.inputs:
        if value.data is None:
            parts[value] = found.get(value) or _byte(value)
        elif value.size != 1:
            return None
    known = [part for part in parts.values() if part is not None]
    roots = {part.root for part in known}
    if len(known) < len(parts) or len(roots) != 1:
        return None
    [root] = roots
    if root.shape != node.output.shape:
        return None
    numbers = {value: part.numbers for value, part in parts.items() if part is not None}
    arrays = [numbers[value] if value.data is None else value.data.reshape(()) for value in node.inputs]
    made = _evaluated(evaluate, arrays, node)
    if made is None:
        return None
    return _Known(root, made, sum(part.operations for part in known) + _operations(node))


def _byte(value: Value) -> _Known | None:
    if value.dtype not in _BYTES:
        return None
    return _Known(value, np.arange(256, dtype=np.uint8).view(value.dtype), 0)


def _operations(node: Node) -> int:
    if node.op in _FUNCTIONS:
        return _OF_FUNCTION
    return _OF_CONVERSION if node.op in _CONVERSIONS else 1


def _fold_of(node: Node) -> _Evaluation | None:
    fold = node.spec.fold
    if fold is None or (node.op == "cast" and node.inputs[0].is_float and not node.output.is_float):
        # What becomes of a number that a whole one cannot be differs between processors.
        return None
    return lambda inputs, attrs, dtype: fold(inputs, attrs, (256,), dtype)


def _evaluated(evaluate: _Evaluation, arrays: _Arrays, node: Node) -> np.ndarray | None:
    """The numbers that a node gives; None where some are none, which are not quantised alike everywhere."""
    with np.errstate(all="ignore"):
        made = np.asarray(evaluate(arrays, node.attrs, node.output.dtype))
    if made.dtype.kind == "f" and np.isnan(made).any():
        return None
    return np.ascontiguousarray(np.broadcast_to(made, (256,)).astype(node.output.dtype))


def _whole(numbers: np.ndarray, zero: Any, dtype: str) -> np.ndarray:
    """The nearest whole numbers with a zero point added to them, saturated."""
    limits = np.iinfo(dtype)
    made: np.ndarray = np.clip(np.rint(numbers) + np.float64(zero), limits.min, limits.max).astype(dtype)
    return made


def _quantize(inputs: _Arrays, attrs: Mapping[str, Any], dtype: str) -> np.ndarray:
    value, scale, zero = inputs
    return _whole(value / scale, zero, dtype)


def _dequantize(inputs: _Arrays, attrs: Mapping[str, Any], dtype: str) -> np.ndarray:
    value, scale, zero = inputs
    return ((value.astype(np.int32) - zero.astype(np.int32)).astype(np.float32) * scale).astype(dtype)


def _unsigned(value: np.ndarray, dtype: str) -> np.ndarray:
    return value.astype(np.int32) + (SIGN if dtype == "int8" else 0)


def _signed_as(value: np.ndarray, dtype: str) -> np.ndarray:
    return (value.astype(np.int32) - (SIGN if dtype == "int8" else 0)).astype(dtype)


def _add_bytes(inputs: _Arrays, attrs: Mapping[str, Any], dtype: str) -> np.ndarray:
    """As `add_bytes` is computed where products and sums are fused: each sum is rounded once."""
    first, second = (_unsigned(one, dtype).astype(np.float64) for one in inputs[:2])
    ratio_first, ratio_second, offset = (one.astype(np.float64) for one in inputs[2:])
    last = (second * ratio_second + offset).astype(np.float32).astype(np.float64)
    return _signed_as(_whole((first * ratio_first + last).astype(np.float32), 0, "uint8"), dtype)


def _multiply_bytes(inputs: _Arrays, attrs: Mapping[str, Any], dtype: str) -> np.ndarray:
    first, second, zero_first, zero_second, ratio, zero = inputs
    product = (_unsigned(first, dtype) - zero_first) * (_unsigned(second, dtype) - zero_second)
    scaled = product.astype(np.float32) * ratio
    # The zero point is added before the rounding, the bounds come before both.
    bounded = np.clip(scaled, np.float32(0) - zero, np.float32(255) - zero) + zero
    return _signed_as(_whole(bounded, 0, "uint8"), dtype)


def _of_numbers(function: Callable[[np.ndarray], np.ndarray]) -> _Evaluation:
    """A function that is computed in double precision and rounded once."""
    return lambda inputs, attrs, dtype: function(inputs[0].astype(np.float64)).astype(dtype)


_erf = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(x: np.ndarray) -> np.ndarray:
    made: np.ndarray = 1.0 / (1.0 + np.exp(-x))
    return made


def _hard_swish(x: np.ndarray) -> np.ndarray:
    made: np.ndarray = x * np.clip(x + 3.0, 0.0, 6.0) / 6.0
    return made


# Of operations that constants are not folded through.
_EVALUATIONS: Mapping[str, _Evaluation] = {
    "quantize": _quantize,
    "dequantize": _dequantize,
    "add_bytes": _add_bytes,
    "multiply_bytes": _multiply_bytes,
    "sigmoid": _of_numbers(_sigmoid),
    "silu": _of_numbers(lambda x: x * _sigmoid(x)),
    "hard_swish": _of_numbers(_hard_swish),
    "gelu": _of_numbers(lambda x: 0.5 * x * (1.0 + _erf(x * np.sqrt(0.5)))),
    "erf": _of_numbers(_erf),
}
