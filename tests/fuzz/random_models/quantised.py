"""Operators of quantised models: pairs of quantising and dequantising, quantised operators, run-time bytes.

Types, signs, scales and zero points are drawn for each tensor, row and column, so that few of them agree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.fuzz.random_models.draw import SIZES, Draw, Operator, Value

_BYTES = ("uint8", "int8")
_CONTRIBUTED = "com.microsoft"
# The first version of the standard with numbers of 16 bits.
WIDE_OPSET = 21


def _scale(d: Draw, width: float, *shape: int) -> np.ndarray:
    """Steps of numbers as large as `width`, with a byte or so."""
    return (width / 128 * d.numbers.uniform(0.7, 1.4, shape)).astype(np.float32)


def _zero(d: Draw, dtype: str, *shape: int) -> np.ndarray:
    """Zero points: mostly somewhere in the middle, now and then at an end."""
    limits = np.iinfo(dtype)
    if dtype in ("int8", "int16") and d.pick(True, False):
        return np.zeros(shape, dtype)
    if d.rng.random() < 0.2:
        return np.full(shape, d.pick(limits.min, limits.max), dtype)
    middle, spread = (limits.min + limits.max) // 2, (limits.max - limits.min) // 6
    return d.numbers.integers(middle - spread, middle + spread, shape).astype(dtype)


def _parameters(d: Draw, dtype: str, listed: bool = False) -> list[str]:
    """Scale and zero point of a whole tensor, as a number or, if that may be, as a list of one."""
    shape = d.pick((), (1,)) if listed else ()
    step = _scale(d, 3.0, *shape) * (1 if np.iinfo(dtype).bits == 8 else 2.0**-8)
    return [d.constant(step.astype(np.float32)), d.constant(_zero(d, dtype, *shape))]


def _byte(d: Draw) -> str:
    """A type of bytes. In files with numbers of 16 bits, ONNX Runtime mixes up the signs of bytes."""
    return str(d.pick("uint8", "uint8" if d.opset >= WIDE_OPSET else "int8"))


def _kind(d: Draw) -> str:
    wide = d.opset >= WIDE_OPSET and d.rng.random() < 0.3
    return str(d.pick("uint16", "int16")) if wide else _byte(d)


def _quantised(d: Draw, x: str, dtype: str, listed: bool = False) -> tuple[str, list[str]]:
    """Integers of a float tensor, with their scale and zero point."""
    parameters = _parameters(d, dtype, listed)
    (made,) = d.add("QuantizeLinear", [x, *parameters])
    return made, parameters


def _real(d: Draw, x: Value, dtype: str = "", listed: bool = False) -> str:
    """A float tensor, rounded to a type of integers; an integer tensor as floats."""
    if x.dtype in ("uint8", "int8", "int16", "uint16"):
        return str(d.add("DequantizeLinear", [x.name, *_parameters(d, x.dtype)])[0])
    d.need(x.dtype == "float32")
    whole, parameters = _quantised(d, x.name, dtype or _kind(d), listed)
    return str(d.add("DequantizeLinear", [whole, *parameters])[0])


def _bytes_of(d: Draw, x: Value) -> tuple[str, list[str], str]:
    """A tensor in bytes, with scale, zero point and type."""
    if x.dtype in _BYTES:
        return x.name, _parameters(d, x.dtype), x.dtype
    d.need(x.dtype == "float32")
    dtype = _byte(d)
    return *_quantised(d, x.name, dtype), dtype


def _weight(d: Draw, dtype: str, shape: Sequence[int], axis: int | None) -> tuple[str, list[str]]:
    """Whole numbers with a scale and a zero point for each index of an axis, or one for all.

    Without VNNI, ONNX Runtime adds products of unsigned and signed bytes in pairs of 16 bits, which saturate:
    numbers of seven bits do not.
    """
    limits = np.iinfo(dtype)
    low, high = limits.min // 2, limits.max // 2 + 1
    middle = (low + high) // 2
    data = d.numbers.integers(low, high, tuple(shape)).astype(dtype)
    listed = () if axis is None else (shape[axis],)
    depth = max(1, math.prod(shape) // max(shape))
    zero = np.clip(middle + d.numbers.integers(-20, 21, listed), limits.min, limits.max).astype(dtype)
    if dtype == "int8" and d.pick(True, True, False):
        zero = np.zeros(listed, dtype)
    return d.constant(data), [d.constant(_scale(d, 2 / math.sqrt(depth), *listed)), d.constant(zero)]


def _real_weight(d: Draw, shape: Sequence[int], axis: int) -> tuple[str, str]:
    """A dequantised weight, and the name of its scale."""
    listed = d.pick(True, False)
    weight, parameters = _weight(d, d.pick("int8", "int8", "uint8"), shape, axis if listed else None)
    kinds = {"axis": axis} if listed else {}
    given = parameters if d.rng.random() < 0.9 else parameters[:1]
    return str(d.add("DequantizeLinear", [weight, *given], **kinds)[0]), parameters[0]


def _ended(d: Draw, value: str) -> None:
    """What follows a layer: an activation, and mostly a pair of other parameters, or bytes alone."""
    after = d.pick("", "", "Relu", "Clip", "Sigmoid", "HardSwish", "Tanh", "LeakyRelu")
    if after == "Clip":
        bounds = [d.constant(np.array(one, np.float32)) for one in d.pick((0, 6), (-1, 1), (0, 1))]
        (value,) = d.add(after, [value, *bounds])
    elif after:
        (value,) = d.add(after, [value])
    end = d.rng.random()
    if end < 0.85:
        whole, parameters = _quantised(d, value, _kind(d))
        if end < 0.7:
            d.add("DequantizeLinear", [whole, *parameters])


def _convolution(d: Draw, x: Value) -> None:
    d.need(x.rank in (3, 4, 5))
    channels, image = x.shape[1], x.shape[2:]
    groups = d.pick(1, 1, channels, *(size for size in (2, 4) if channels % size == 0))
    outputs = groups * d.pick(1, 2, 3, 4, 8)
    kernel = [d.rng.randint(1, min(3, size)) for size in image]
    pads = [d.rng.randint(0, k - 1) for k in (*kernel, *kernel)]
    kinds: dict[str, Any] = {"pads": pads, "strides": [d.pick(1, 1, 2) for _ in image], "group": groups}
    data = _real(d, x, listed=d.pick(True, False))
    weight, scale = _real_weight(d, (outputs, channels // groups, *kernel), 0)
    bias: list[str] = []
    if d.pick(True, False):
        numbers = d.numbers.integers(-500, 500, outputs).astype(np.int32)
        bias = d.add("DequantizeLinear", [d.constant(numbers), scale], axis=0)
    elif d.pick(True, False):
        bias = [d.constant(d.array((outputs,), "float32"))]
    (made,) = d.add("Conv", [data, weight, *bias], **kinds)
    _ended(d, made)


def _transposed(d: Draw, x: Value) -> None:
    """A transposed convolution, which has no product in integers."""
    d.need(x.rank in (3, 4))
    kernel, outputs = [d.rng.randint(1, 3) for _ in x.shape[2:]], d.pick(1, 2, 5)
    weight, _ = _real_weight(d, (x.shape[1], outputs, *kernel), 1)
    (made,) = d.add("ConvTranspose", [_real(d, x), weight], strides=[d.pick(1, 2) for _ in kernel])
    _ended(d, made)


def _dense(d: Draw, x: Value) -> None:
    d.need(x.rank > 1)
    columns, depth = d.pick(*SIZES), x.shape[-1]
    data = _real(d, x, listed=d.pick(True, False))
    if x.rank == 2 and d.pick(True, False):
        across = d.pick(0, 1)
        shape = (columns, depth) if across else (depth, columns)
        weight, _ = _real_weight(d, shape, 0 if across else 1)
        bias = d.pick([], [d.constant(d.array((columns,), "float32"))])
        (made,) = d.add("Gemm", [data, weight, *bias], transB=across)
    else:
        weight, _ = _real_weight(d, (depth, columns), 1)
        (made,) = d.add("MatMul", [data, weight])
        if d.pick(True, False):
            (made,) = d.add("Add", [made, d.constant(d.array((columns,), "float32"))])
    _ended(d, made)


def _attention(d: Draw, x: Value) -> None:
    """A product of two quantised tensors."""
    d.need(x.rank > 1 and x.dtype == "float32")
    (turned,) = d.add("Transpose", [x.name], perm=[*range(x.rank - 2), x.rank - 1, x.rank - 2])
    shape = (*x.shape[:-2], x.shape[-1], x.shape[-2])
    kind = _byte(d)
    left, right = _real(d, x, kind), _real(d, Value(turned, shape, "float32", False), kind)
    (made,) = d.add("MatMul", [left, right])
    if d.pick(True, False):
        made = _real(d, Value(made, (), "float32", False), kind)
        (made,) = d.add("Softmax", [made], axis=-1)
    _ended(d, made)


def _heads(d: Draw, x: Value) -> None:
    """Attention of a quantised file, of inputs of its own: few tensors have the sizes by chance."""
    d.need(len(d.inputs) < 3)
    heads, depth, rows, columns = d.pick(1, 2, 3), d.pick(4, 8, 17), d.pick(16, 17, 40), d.pick(64, 70, 96)
    query, key = d.input((1, heads, rows, depth), "float32"), d.input((1, heads, columns, depth), "float32")
    kind, perm = _byte(d), [0, 1, 3, 2]
    if d.pick(True, False):
        (turned,) = d.add("Transpose", [key.name], perm=perm)
        right = _real(d, Value(turned, (), "float32", False), kind)
    else:
        (right,) = d.add("Transpose", [_real(d, key, kind)], perm=perm)
    (made,) = d.add("MatMul", [_real(d, query, kind), right])
    for op, other in d.pick([], [("Mul", 0.3)], [("Div", 4.0)], [("Mul", 0.3), ("Add", None)]):
        mask = np.where(d.numbers.random((rows, columns)) < 0.3, -9, 0).astype(np.float32)
        made = _real(d, Value(made, (), "float32", False), d.pick(kind, kind, _kind(d)))
        (made,) = d.add(op, [made, d.constant(mask if other is None else np.array(other, np.float32))])
    (weights,) = d.add("Softmax", [_real(d, Value(made, (), "float32", False), kind)], axis=-1)
    step = [d.constant(np.array(d.pick(1 / 256, 0.0041), np.float32))]
    step.append(d.constant(np.array(np.iinfo(kind).min, kind)))
    (whole,) = d.add("QuantizeLinear", [weights, *step])
    (weights,) = d.add("DequantizeLinear", [whole, *step])
    (made,) = d.add("MatMul", [weights, _real(d, key, kind)])
    made = _real(d, Value(made, (), "float32", False), kind)
    if d.pick(True, False):
        d.add("Transpose", [made], perm=[0, 2, 1, 3])


def _of_two(d: Draw, x: Value) -> None:
    kind = _byte(d)
    d.need(x.dtype == "float32")
    left, right = _real(d, x, kind), d.other(x)
    right = _real(d, Value(right, (), "float32", False), d.pick(kind, kind, _kind(d)))
    (made,) = d.add(d.pick("Add", "Mul", "Sub"), d.pick([left, right], [right, left]))
    if d.pick(True, False):
        (made,) = d.add("Relu", [made])
    whole, parameters = _quantised(d, made, d.pick(kind, kind, _kind(d)))
    d.add("DequantizeLinear", [whole, *parameters])


def _moved(d: Draw, x: Value) -> None:
    """Something that moves or selects elements, between pairs with the same or with other parameters."""
    d.need(x.dtype == "float32" and x.rank > 1)
    dtype = _kind(d)
    whole, parameters = _quantised(d, x.name, dtype)
    (value,) = d.add("DequantizeLinear", [whole, *parameters])
    op = d.pick("Concat", "Pad", "Transpose", "Slice", "MaxPool", "AveragePool", "Resize", "Reshape", "Split")
    if op == "Concat":
        other = _real(d, x, d.pick(dtype, dtype, _kind(d)))
        value = d.add(op, [value, d.pick(other, value)], axis=d.axis(x))[0]
    elif op == "Pad":
        filled = [d.constant(np.array(d.pick(0.0, 0.3, -1.0), np.float32))]
        pads = d.constant([d.rng.randint(0, 2) for _ in range(2 * x.rank)])
        value = d.add(op, [value, pads, *filled])[0]
    elif op == "Transpose":
        value = d.add(op, [value], perm=d.rng.sample(range(x.rank), x.rank))[0]
    elif op == "Slice":
        axis = d.rng.randrange(x.rank)
        bounds = [d.constant([one]) for one in (0, (x.shape[axis] + 1) // 2, axis)]
        value = d.add(op, [value, *bounds])[0]
    elif op == "Reshape":
        value = d.add(op, [value, d.constant([x.shape[0], -1])])[0]
    elif op == "Split":
        axis = d.rng.randrange(x.rank)
        d.need(x.shape[axis] > 1)
        sizes = d.constant([1, x.shape[axis] - 1])
        value = d.pick(*d.add(op, [value, sizes], 2, axis=axis))
    elif op == "Resize":
        d.need(x.rank == 4)
        scales = d.constant(np.array([1, 1, 2, d.pick(1, 2)], np.float32))
        mode = d.pick("nearest", "linear")
        value = d.add(op, [value, "", scales], mode=mode, coordinate_transformation_mode="asymmetric")[0]
    else:
        d.need(x.rank == 4)
        kernel = [d.rng.randint(1, min(3, size)) for size in x.shape[2:]]
        pads = [d.rng.randint(0, k - 1) for k in (*kernel, *kernel)]
        value = d.add(op, [value], kernel_shape=kernel, pads=pads, strides=[1, d.pick(1, 2)])[0]
    again = parameters if d.pick(True, False) else _parameters(d, dtype)
    (whole,) = d.add("QuantizeLinear", [value, *again])
    if d.pick(True, True, False):
        d.add("DequantizeLinear", [whole, *again])


def _qlinear_product(d: Draw, x: Value) -> None:
    data, given, dtype = _bytes_of(d, x)
    made = _parameters(d, dtype)
    if x.rank in (3, 4) and d.pick(True, False):
        outputs, channels = d.pick(1, 2, 3, 4, 8), x.shape[1]
        kernel = [d.rng.randint(1, min(3, size)) for size in x.shape[2:]]
        # Of weights, the standard has no zero point but 0 for each channel.
        weight, parameters = _weight(d, "int8", (outputs, channels, *kernel), d.pick(None, 0))
        zero = d.constant(np.zeros(d.shape_of(parameters[1]), np.int8))
        bias = d.pick([], [d.constant(d.numbers.integers(-900, 900, outputs).astype(np.int32))])
        pads = [k // 2 for k in kernel] * 2
        d.add("QLinearConv", [data, *given, weight, parameters[0], zero, *made, *bias], pads=pads)
        return
    d.need(x.rank > 1)
    columns, kind = d.pick(*SIZES), d.pick("int8", dtype) if dtype == "uint8" else "int8"
    weight, parameters = _weight(d, kind, (x.shape[-1], columns), None)
    d.add("QLinearMatMul", [data, *given, weight, *parameters, *made])


def _qlinear_contributed(d: Draw, x: Value) -> None:
    data, given, dtype = _bytes_of(d, x)
    made, shape = _parameters(d, dtype), list(x.shape)
    op = d.pick(
        "QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu", "QLinearConcat", "QLinearSoftmax"
    )
    inputs, kinds = [data, *given, *made], {}
    if op in ("QLinearAdd", "QLinearMul"):
        other, parameters = _weight(d, dtype, [d.pick(1, size) for size in x.shape], None)
        inputs = [data, *given, other, *parameters, *made]
        if d.rng.random() < 0.2:
            inputs = inputs[:-1]
    elif op == "QLinearLeakyRelu":
        kinds = {"alpha": 0.2}
    elif op == "QLinearConcat":
        axis = d.axis(x)
        inputs, kinds = [*made, data, *given, data, *_parameters(d, dtype)], {"axis": axis}
        shape[axis] *= 2
    elif op == "QLinearSoftmax":
        d.need(x.rank > 0)
        made = [d.constant(np.array(1 / 256, np.float32)), d.constant(_zero(d, dtype))]
        inputs, kinds = [data, *given, *made], {"axis": -1, "opset": 13}
    (name,) = d.add(op, inputs, domain=_CONTRIBUTED, **kinds)
    d.declare(name, shape, dtype)


def _integers(d: Draw, x: Value) -> None:
    """A product of whole numbers, quantised before or at run time, and a scale behind it."""
    d.need(x.rank > 1)
    unit = d.constant(np.array(0.01, np.float32))
    if x.dtype == "float32" and d.pick(True, False):
        data, scale, zero = d.add("DynamicQuantizeLinear", [x.name], 3)
        (unit,) = d.add("Mul", [scale, unit])
    else:
        data, (_, zero), _ = _bytes_of(d, x)
    if x.rank == 4 and d.pick(True, False):
        outputs = d.pick(1, 2, 4, 5)
        weight, parameters = _weight(d, "uint8", (outputs, x.shape[1], 1, min(3, x.shape[3])), None)
        (whole,) = d.add("ConvInteger", [data, weight, zero, parameters[1]], pads=[0, d.pick(0, 1), 0, 1])
    else:
        columns, kind = d.pick(*SIZES), d.pick(*_BYTES)
        weight, parameters = _weight(d, kind, (x.shape[-1], columns), d.pick(None, 1))
        zeros = d.pick([zero, parameters[1]], [zero])
        (whole,) = d.add("MatMulInteger", [data, weight, *zeros])
    (single,) = d.add("Cast", [whole], to=1)
    d.add("Mul", [single, unit])


def _alone(d: Draw, x: Value) -> None:
    """Integers as floats, or floats as integers that nothing turns back."""
    if x.dtype == "float32":
        _quantised(d, x.name, _kind(d))
        return
    if x.dtype == "int32":
        d.add("DequantizeLinear", [x.name, d.constant(np.array(0.02, np.float32))])
        return
    d.need(x.dtype in ("uint8", "int8", "uint16", "int16"))
    _ended(d, _real(d, x))


QUANTISED: tuple[Operator, ...] = (
    _convolution,
    _convolution,
    _transposed,
    _dense,
    _dense,
    _attention,
    _heads,
    _of_two,
    _of_two,
    _moved,
    _moved,
    _qlinear_product,
    _qlinear_contributed,
    _integers,
    _alone,
)
