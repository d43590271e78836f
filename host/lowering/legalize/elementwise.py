"""Elementwise operations as expressions of scalars."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx, topi

from host.lowering.expressions import math
from host.lowering.legalize import quantized

Expression = Any
_Maker = Callable[[Sequence[Expression], dict[str, Any], str], Expression]

# Formulas of `math` hold for fp32 only; other floats use the compiler's own functions.
_FP32 = {
    "exp": math.exp,
    "log": math.log,
    "tanh": math.tanh,
    "erf": math.erf,
    "sigmoid": math.sigmoid,
    "gelu": math.gelu,
    "gelu_tanh": math.gelu_tanh,
    "silu": math.silu,
}


def _const(value: float, dtype: str) -> Expression:
    return tirx.const(int(value) if dtype.startswith(("int", "uint")) else float(value), dtype)


def _intrinsic(name: str) -> _Maker:
    function = getattr(tirx, name)
    return lambda args, attrs, dtype: function(args[0])


def _topi_binary(name: str) -> _Maker:
    function = getattr(topi, name)
    return lambda args, attrs, dtype: function(args[0], args[1])


def _clip(args: Sequence[Expression], attrs: dict[str, Any], dtype: str) -> Expression:
    value = args[0]
    if attrs["high"] != float("inf"):
        value = tirx.min(value, _const(attrs["high"], dtype))
    if attrs["low"] != -float("inf"):
        value = tirx.max(value, _const(attrs["low"], dtype))
    return value


def _relu(args: Sequence[Expression], attrs: dict[str, Any], dtype: str) -> Expression:
    return tirx.max(args[0], _const(0, dtype))


def _leaky_relu(args: Sequence[Expression], attrs: dict[str, Any], dtype: str) -> Expression:
    return math.bind(
        args[0], lambda v: tirx.Select(v > _const(0, dtype), v, v * _const(attrs["alpha"], dtype))
    )


def _prelu(args: Sequence[Expression], attrs: dict[str, Any], dtype: str) -> Expression:
    return math.bind(args[0], lambda v: tirx.Select(v > _const(0, dtype), v, v * args[1]))


def _hard_sigmoid(args: Sequence[Expression], attrs: dict[str, Any], dtype: str) -> Expression:
    scaled = args[0] * _const(attrs["alpha"], dtype) + _const(attrs["beta"], dtype)
    return tirx.max(tirx.min(scaled, _const(1, dtype)), _const(0, dtype))


def _hard_swish(args: Sequence[Expression], attrs: dict[str, Any], dtype: str) -> Expression:
    def body(v: Expression) -> Expression:
        gate = tirx.max(tirx.min(v + _const(3, dtype), _const(6, dtype)), _const(0, dtype))
        return v * gate * _const(1 / 6, dtype)

    return math.bind(args[0], body)


def _cast(args: Sequence[Expression], attrs: dict[str, Any], dtype: str) -> Expression:
    value = args[0]
    source = dtype_of(value)
    if source == dtype:
        return value
    if dtype == "bool":
        return value != _const(0, source)
    return tirx.Cast(dtype, value)


def _where(args: Sequence[Expression], attrs: dict[str, Any], dtype: str) -> Expression:
    condition = args[0]
    if dtype_of(condition) != "bool":
        condition = condition != _const(0, dtype_of(condition))
    return tirx.Select(condition, args[1], args[2])


def _selu(args: Sequence[Expression], attrs: dict[str, Any], dtype: str) -> Expression:
    scale, alpha = 1.0507009873554804934, 1.6732632423543772848
    exponential = math.exp if dtype == "float32" else tirx.exp

    def body(v: Expression) -> Expression:
        negative = _const(scale * alpha, dtype) * (exponential(v) - _const(1, dtype))
        return tirx.Select(v > _const(0, dtype), v * _const(scale, dtype), negative)

    return math.bind(args[0], body)


def _softplus(args: Sequence[Expression], attrs: dict[str, Any], dtype: str) -> Expression:
    beta, threshold = _const(attrs["beta"], dtype), _const(attrs["threshold"], dtype)
    exponential, logarithm = (math.exp, math.log) if dtype == "float32" else (tirx.exp, tirx.log)

    def body(v: Expression) -> Expression:
        # max(x, 0) + log(1 + exp(-|x|)) does not overflow.
        soft = tirx.max(v * beta, _const(0, dtype)) + logarithm(
            _const(1, dtype) + exponential(-tirx.abs(v * beta))
        )
        return tirx.Select(v * beta > threshold, v, soft / beta)

    return math.bind(args[0], body)


def _sign(args: Sequence[Expression], attrs: dict[str, Any], dtype: str) -> Expression:
    zero, one = _const(0, dtype), _const(1, dtype)
    return math.bind(
        args[0], lambda v: tirx.Select(v > zero, one, tirx.Select(v < zero, _const(-1, dtype), v * zero))
    )


def _generic_activation(name: str) -> _Maker:
    """Activations of other floats, from the compiler's own functions."""

    def make(args: Sequence[Expression], attrs: dict[str, Any], dtype: str) -> Expression:
        one, half = _const(1, dtype), _const(0.5, dtype)
        if name == "sigmoid":
            return one / (one + tirx.exp(-args[0]))
        if name == "silu":
            return math.bind(args[0], lambda v: v / (one + tirx.exp(-v)))
        if name == "gelu":
            return math.bind(
                args[0], lambda v: half * v * (one + tirx.erf(v * _const(0.7071067811865476, dtype)))
            )
        factor, cubic = _const(0.7978845608028654, dtype), _const(0.044715, dtype)
        return math.bind(args[0], lambda v: half * v * (one + tirx.tanh(factor * (v + cubic * v * v * v))))

    return make


_INTRINSICS = """
    abs acos acosh asin asinh atan atanh bitwise_not ceil cos cosh erf exp floor isfinite isinf
    isnan log round rsqrt sin sinh sqrt tan tanh trunc
"""
_TOPI_BINARY = """
    add subtract multiply divide floor_divide power maximum minimum mod floor_mod equal not_equal
    less less_equal greater greater_equal logical_and logical_or logical_xor bitwise_and bitwise_or
    bitwise_xor left_shift right_shift
"""
_MAKERS: dict[str, _Maker] = {
    **{name: _intrinsic(name) for name in _INTRINSICS.split()},
    **{name: _topi_binary(name) for name in _TOPI_BINARY.split()},
    **{name: _generic_activation(name) for name in ("sigmoid", "silu", "gelu", "gelu_tanh")},
    "negative": lambda args, attrs, dtype: -args[0],
    "logical_not": lambda args, attrs, dtype: tirx.Not(args[0]),
    "square": lambda args, attrs, dtype: math.bind(args[0], lambda v: v * v),
    "reciprocal": lambda args, attrs, dtype: _const(1, dtype) / args[0],
    "broadcast": lambda args, attrs, dtype: args[0],
    "sign": _sign,
    "clip": _clip,
    "relu": _relu,
    "leaky_relu": _leaky_relu,
    "prelu": _prelu,
    "hard_sigmoid": _hard_sigmoid,
    "hard_swish": _hard_swish,
    "cast": _cast,
    "where": _where,
    "selu": _selu,
    "softplus": _softplus,
    "quantize": quantized.quantize,
    "dequantize": quantized.dequantize,
}


def dtype_of(expression: Expression) -> str:
    """Dtype of a TensorIR expression."""
    return str(expression.ty.dtype) if hasattr(expression, "ty") else str(expression.dtype)


def expression(op: str, args: Sequence[Expression], attrs: dict[str, Any], dtype: str) -> Expression:
    """One element of the output of an elementwise operation.

    Args:
        op: a name of `operators.ELEMENTWISE`.
        args: one element of each input.
        attrs: of the node.
        dtype: of the output.

    Raises:
        KeyError: no such operation.
    """
    if dtype == "float32" and op in _FP32:
        return _FP32[op](args[0])
    return _MAKERS[op](args, attrs, dtype)
