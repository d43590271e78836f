"""Readers of elementwise operators, reductions and constants."""

from __future__ import annotations

import numpy as np

from host.lowering.builder import Builder
from host.lowering.graph import Value, constant, normalise_axis
from host.lowering.operators import BINARY, UNARY
from host.lowering.reader.call import OperatorCall, Reader

_FULL_LIMIT = 1 << 22


def _unary(name: str) -> Reader:
    def read(builder: Builder, call: OperatorCall) -> Value:
        return builder.one(name, [call.value(0)], call.shape, call.dtype)

    return read


def _binary(name: str) -> Reader:
    def read(builder: Builder, call: OperatorCall) -> Value:
        return builder.one(name, [call.value(0), call.value(1)], call.shape, call.dtype)

    return read


def _clip(builder: Builder, call: OperatorCall) -> Value:
    return builder.unary("clip", call.value(0), low=call.number(1), high=call.number(2))


def _leaky_relu(builder: Builder, call: OperatorCall) -> Value:
    return builder.unary("leaky_relu", call.value(0), alpha=float(call.attrs.alpha))


def _prelu(builder: Builder, call: OperatorCall) -> Value:
    data, slope = call.value(0), call.value(1)
    axis = normalise_axis(int(call.attrs.axis), len(data.shape))
    shape = [1] * len(data.shape)
    shape[axis] = slope.size
    return builder.one("prelu", [data, builder.reshape(slope, shape)], call.shape, call.dtype)


def _softplus(builder: Builder, call: OperatorCall) -> Value:
    beta, threshold = float(call.attrs.beta), float(call.attrs.threshold)
    return builder.unary("softplus", call.value(0), beta=beta, threshold=threshold)


def _cast(builder: Builder, call: OperatorCall) -> Value:
    return builder.cast(call.value(0), call.dtype)


def _where(builder: Builder, call: OperatorCall) -> Value:
    return builder.one("where", [call.value(i) for i in range(3)], call.shape, call.dtype)


def _broadcast(builder: Builder, call: OperatorCall) -> Value:
    value = call.value(0)
    if value.shape == call.shape:
        return value
    return builder.one("broadcast", [value], call.shape, call.dtype)


def _identity(builder: Builder, call: OperatorCall) -> Value:
    return call.value(0)


def _filled(builder: Builder, call: OperatorCall, number: object) -> Value | None:
    element = constant(np.asarray(number).astype(call.dtype).reshape(()))
    if not call.shape:
        return element
    return builder.one("broadcast", [element], call.shape, call.dtype)


def _full(builder: Builder, call: OperatorCall) -> Value | None:
    fill = call.value(1)
    if fill.data is None:
        return builder.one("broadcast", [builder.cast(fill, call.dtype)], call.shape, call.dtype)
    return _filled(builder, call, fill.data.reshape(()))


def _zeros(builder: Builder, call: OperatorCall) -> Value | None:
    return _filled(builder, call, 0)


def _ones(builder: Builder, call: OperatorCall) -> Value | None:
    return _filled(builder, call, 1)


def _arange(builder: Builder, call: OperatorCall) -> Value | None:
    if not all(hasattr(argument, "value") for argument in call.arguments):
        return None
    start, stop, step = (argument.value for argument in call.arguments)
    return constant(np.arange(start, stop, step, dtype=call.dtype))


def _cumsum(builder: Builder, call: OperatorCall) -> Value | None:
    value = call.value(0)
    if value.data is None or call.attrs.exclusive:
        return None
    data, axis = (
        (value, call.attrs.axis) if call.attrs.axis is not None else (builder.reshape(value, (-1,)), 0)
    )
    return builder.one(
        "cumsum", [data], call.shape, call.dtype, axis=normalise_axis(int(axis), len(data.shape))
    )


def _reduction(name: str) -> Reader:
    def read(builder: Builder, call: OperatorCall) -> Value:
        value = call.value(0)
        rank = len(value.shape)
        axes = call.attrs.axis
        chosen = range(rank) if axes is None else [normalise_axis(int(a), rank) for a in axes]
        return builder.one(
            name,
            [value],
            call.shape,
            call.dtype,
            axes=tuple(sorted(set(chosen))),
            keepdims=bool(call.attrs.keepdims),
        )

    return read


def _std(builder: Builder, call: OperatorCall) -> Value:
    return builder.unary("sqrt", _reduction("variance")(builder, call))  # type: ignore[arg-type]


READERS: dict[str, Reader] = {
    **{
        name: _unary(name) for name in UNARY - {"gelu", "gelu_tanh", "silu", "relu", "leaky_relu", "softplus"}
    },
    **{f"nn.{name}": _unary(name) for name in ("relu", "gelu", "gelu_tanh", "silu", "selu")},
    **{name: _binary(name) for name in BINARY - {"prelu"}},
    **{name: _reduction(name) for name in ("sum", "mean", "max", "min", "prod", "variance")},
    "std": _std,
    "clip": _clip,
    "nn.leakyrelu": _leaky_relu,
    "nn.prelu": _prelu,
    "nn.softplus": _softplus,
    "astype": _cast,
    "where": _where,
    "broadcast_to": _broadcast,
    "full": _full,
    "full_like": _full,
    "zeros": _zeros,
    "zeros_like": _zeros,
    "ones": _ones,
    "ones_like": _ones,
    "arange": _arange,
    "cumsum": _cumsum,
    "stop_lift_params": _identity,
}
