"""Tensors that are known when the model is read: of one number, of numbers in a row, of a shape."""

from __future__ import annotations

import numpy as np

from host.lowering.builder import Builder
from host.lowering.graph import Value, constant
from host.lowering.ops.forms import elementwise, of_one
from host.lowering.reader.call import OperatorCall
from host.lowering.spec import OpSpec, Reader


def _broadcast(builder: Builder, call: OperatorCall) -> Value:
    value = call.value(0)
    if value.shape == call.shape:
        return value
    return builder.one("broadcast", [value], call.shape, call.dtype)


def _filled(builder: Builder, call: OperatorCall, number: object) -> Value:
    element = constant(np.asarray(number).astype(call.dtype).reshape(()))
    if not call.shape:
        return element
    return builder.one("broadcast", [element], call.shape, call.dtype)


def _full(builder: Builder, call: OperatorCall) -> Value:
    fill = call.value(1)
    if fill.data is None:
        return builder.one("broadcast", [builder.cast(fill, call.dtype)], call.shape, call.dtype)
    return _filled(builder, call, fill.data.reshape(()))


def _of(number: int) -> Reader:
    return lambda builder, call: _filled(builder, call, number)


def _arange(builder: Builder, call: OperatorCall) -> Value | None:
    if not all(hasattr(argument, "value") for argument in call.arguments):
        return None
    start, stop, step = (argument.value for argument in call.arguments)
    return constant(np.arange(start, stop, step, dtype=call.dtype))


def _shape_to_tensor(builder: Builder, call: OperatorCall) -> Value:
    return constant(np.asarray([int(d) for d in call.arguments[0].values], dtype="int64"))


SPECS: tuple[OpSpec, ...] = (
    elementwise(
        "broadcast",
        of_one(lambda x: x),
        read={
            "broadcast_to": _broadcast,
            "full": _full,
            "full_like": _full,
            "zeros": _of(0),
            "zeros_like": _of(0),
            "ones": _of(1),
            "ones_like": _of(1),
        },
        fold=lambda x: x,
    ),
    OpSpec("arange", read={"arange": _arange}),
    OpSpec("shape_to_tensor", read={"shape_to_tensor": _shape_to_tensor}),
    OpSpec("identity", read={"stop_lift_params": lambda builder, call: call.value(0)}),
)
