"""Operators that compute: functions of elements, and reductions along dimensions."""

from __future__ import annotations

import math

import numpy as np

from tests.fuzz.random_models.draw import Draw, Operator, Value


def _unary(d: Draw, x: Value) -> None:
    d.need(x.floating)
    op = d.pick(
        "Relu",
        "LeakyRelu",
        "Sigmoid",
        "Tanh",
        "Abs",
        "Neg",
        "Softplus",
        "Elu",
        "Selu",
        "Sin",
        "Cos",
        "Erf",
        "HardSwish",
        "HardSigmoid",
        "Gelu",
        "Softsign",
        "Mish",
        "ThresholdedRelu",
        "Celu",
    )
    d.need(x.dtype == "float32" or op in ("Relu", "Sigmoid", "Tanh", "Abs", "Neg", "Sin", "Cos"))
    d.need(op != "ThresholdedRelu" or x.exact)
    d.add(op, [x.name])


def _clip(d: Draw, x: Value) -> None:
    low, high = (np.array(value, x.dtype) for value in ((-1, 1) if x.floating else (1, 3)))
    d.need(x.dtype != "bool")
    d.add("Clip", [x.name, d.pick("", d.constant(low)), d.constant(high)])


def _binary(d: Draw, x: Value) -> None:
    if x.dtype == "bool":
        d.add(d.pick("And", "Or", "Xor"), [x.name, d.other(x)])
        return
    d.need(x.dtype != "uint8")
    op = d.pick("Add", "Sub", "Mul", "Max", "Min")
    d.add(op, d.pick([x.name, d.other(x)], [d.other(x), x.name]))


def _reduce(d: Draw, x: Value) -> None:
    d.need(x.rank > 0 and x.dtype in ("float32", "int32"))
    op = d.pick(
        "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceL1", "ReduceSumSquare"
    )
    d.need(x.floating or op in ("ReduceSum", "ReduceMax", "ReduceMin"))
    axes = d.rng.sample(range(x.rank), d.rng.randint(1, x.rank))
    axes = [axis - d.pick(0, x.rank) for axis in axes]
    d.add(op, [x.name, d.constant(axes)], keepdims=d.pick(0, 1))


def _cumulate(d: Draw, x: Value) -> None:
    d.need(x.dtype in ("float32", "int32", "int64") and x.rank > 0)
    axis = d.constant(np.array(d.axis(x), np.int64))
    d.add("CumSum", [x.name, axis], exclusive=d.pick(0, 1), reverse=d.pick(0, 1))


def _rows(d: Draw, x: Value) -> None:
    d.need(x.dtype == "float32" and x.rank > 0)
    axis = d.axis(x)
    kind = d.pick("Softmax", "LogSoftmax", "LayerNormalization", "LpNormalization")
    if kind == "LayerNormalization":
        shape = x.shape[axis:] if axis < 0 else x.shape[axis - x.rank :]
        d.need(math.prod(shape) > 3)
        scale = d.constant(d.numbers.uniform(0.5, 1.5, shape).astype(x.dtype))
        d.add(kind, d.pick([x.name, scale], [x.name, scale, d.weight(*shape, like=x)]), axis=axis)
    else:
        d.need(kind != "LpNormalization" or x.shape[axis] > 2)
        d.add(kind, [x.name], axis=axis)


ARITHMETIC: tuple[Operator, ...] = (_unary, _binary, _binary, _clip, _reduce, _cumulate, _rows)
