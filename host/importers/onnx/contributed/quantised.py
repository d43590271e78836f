"""Operators on quantised tensors, as standard operators on real numbers between dequantising and quantising.

The compiler computes them in integers where it can, as those of files in the QDQ format.
"""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from host.importers.onnx.contributed.attention import with_projection
from host.importers.onnx.contributed.body import Body, Expansion
from host.importers.onnx.contributed.norms import embedded


def _real(body: Body, value: str, scale: str, zero: str, axis: int | None = None) -> str:
    """The real numbers of a quantised tensor, with a scale for each index of an axis where there is one."""
    attributes = {} if axis is None or body.shape(scale) in ((), (1,)) else {"axis": axis}
    return body.add("DequantizeLinear", value, _single(body, scale), *_given(body, zero), **attributes)


def _quantised(body: Body, value: str, scale: str, zero: str, operand: str) -> None:
    """Set the result. Without a zero point, the standard's bytes have no sign; these have an operand's."""
    point = _single(body, zero) if zero else body.constant(0, body.dtype(operand))
    body.set_output(body.add("QuantizeLinear", value, _single(body, scale), point))


def _given(body: Body, zero: str) -> list[str]:
    return [_single(body, zero)] if zero else []


def _single(body: Body, value: str) -> str:
    """A list of one number as the number: the standard reads a list as one for each index of an axis."""
    return body.add("Reshape", value, body.numbers([])) if body.shape(value) == (1,) else value


def _renamed(operator: str) -> Expansion:
    def expand(body: Body) -> None:
        x, scale, zero = body.inputs(3)
        known = {name: value for name, value in body.attributes.items() if name == "axis"}
        attributes = {} if body.shape(scale) in ((), (1,)) else known or {"axis": 1}
        body.set_output(body.add(operator, x, _single(body, scale), *_given(body, zero), **attributes))

    return expand


def _of_two(operator: str) -> Expansion:
    def expand(body: Body) -> None:
        a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = body.inputs(8)
        made = body.add(operator, _real(body, a, a_scale, a_zero), _real(body, b, b_scale, b_zero))
        _quantised(body, made, scale, zero, a)

    return expand


def _of_one(operator: str, *names: str) -> Expansion:
    """An operator of one tensor, with some of the node's attributes."""

    def expand(body: Body) -> None:
        x, x_scale, x_zero, scale, zero = body.inputs(5)
        attributes = {name: body.attributes[name] for name in names if name in body.attributes}
        _quantised(body, body.add(operator, _real(body, x, x_scale, x_zero), **attributes), scale, zero, x)

    return expand


def _pooled(operator: str, *names: str) -> Expansion:
    """Pooling over the axes of an image, which may come before the channels."""

    def expand(body: Body) -> None:
        x, x_scale, x_zero, scale, zero = body.inputs(5)
        value, rank = _real(body, x, x_scale, x_zero), len(body.shape(x))
        last = body.attribute("channels_last", 0)
        if last:
            value = body.add("Transpose", value, perm=[0, rank - 1, *range(1, rank - 1)])
        attributes = {name: body.attributes[name] for name in names if name in body.attributes}
        value = body.add(operator, value, **attributes)
        if last:
            value = body.add("Transpose", value, perm=[0, *range(2, rank), 1])
        _quantised(body, value, scale, zero, x)

    return expand


def _concat(body: Body) -> None:
    scale, zero, *rest = body.all_inputs
    if len(rest) % 3:
        raise body.fail("its inputs are not tensors with a scale and a zero point each")
    parts = [_real(body, *one) for one in zip(rest[::3], rest[1::3], rest[2::3], strict=True)]
    _quantised(body, body.add("Concat", *parts, axis=body.attribute("axis", 0)), scale, zero, rest[0])


def _softmax(body: Body) -> None:
    x, x_scale, x_zero, scale, zero = body.inputs(5)
    axis, rank = body.attribute("axis", -1), len(body.shape(x))
    if body.attribute("opset", 13) < 13 and axis not in (-1, rank - 1):
        raise body.fail("a softmax over several axes has no conversion")
    _quantised(body, body.add("Softmax", _real(body, x, x_scale, x_zero), axis=axis), scale, zero, x)


def _where(body: Body) -> None:
    condition, x, x_scale, x_zero, y, y_scale, y_zero, scale, zero = body.inputs(9)
    parts = [_real(body, x, x_scale, x_zero), _real(body, y, y_scale, y_zero)]
    _quantised(body, body.add("Where", condition, *parts), scale, zero, x)


def _product(body: Body) -> None:
    """The sum alpha A B + C, whose C is whole numbers of the scale of the product."""
    a, a_scale, a_zero, b, b_scale, b_zero, c, scale, zero = body.inputs(9)
    across = 0 if body.attribute("transB", 0) else 1
    attributes = {name: body.attribute(name, 0) for name in ("transA", "transB")}
    alpha = body.attribute("alpha", 1.0)
    factors = [_real(body, a, a_scale, a_zero), _real(body, b, b_scale, b_zero, across)]
    if c:
        unit = body.add("Mul", _single(body, a_scale), _single(body, b_scale))
        if alpha != 1.0:
            unit = body.add("Mul", unit, body.constant(alpha, np.float32))
        addend = body.add("Mul", body.add("Cast", c, to=TensorProto.FLOAT), unit)
        made = body.add("Gemm", *factors, addend, alpha=alpha, **attributes)
    else:
        made = body.add("Gemm", *factors, alpha=alpha, **attributes)
    if scale:
        _quantised(body, made, scale, zero, a)
    else:
        body.set_output(made)


def _whole_product(body: Body, a: str, b: str, a_zero: str, b_zero: str, unit: str) -> str:
    """The product of whole numbers with a zero point each, as real numbers."""
    zeros = [a_zero or body.constant(0, body.dtype(a))] if a_zero or b_zero else []
    zeros = [_single(body, zeros[0]), _single(body, b_zero)] if b_zero else zeros
    product = body.add("MatMulInteger", a, b, *zeros)
    return body.add("Mul", body.add("Cast", product, to=TensorProto.FLOAT), unit)


def _product_to_real(body: Body) -> None:
    a, b, a_scale, b_scale, a_zero, b_zero, bias = body.inputs(7)
    unit = body.add("Mul", _single(body, a_scale), _single(body, b_scale))
    made = _whole_product(body, a, b, a_zero, b_zero, unit)
    body.set_output(body.add("Add", made, bias) if bias else made)


def _dynamic_product(body: Body) -> None:
    a, b, b_scale, b_zero, bias = body.inputs(5)
    whole, scale, zero = body.dynamically_quantised(a)
    unit = body.add("Mul", scale, _single(body, b_scale))
    zeros = [zero, _single(body, b_zero)] if b_zero else [zero]
    product = body.add("MatMulInteger", whole, b, *zeros)
    made = body.add("Mul", body.add("Cast", product, to=TensorProto.FLOAT), unit)
    body.set_output(body.add("Add", made, bias) if bias else made)


def _attention(body: Body) -> None:
    x, weights, bias, x_scale, scale, mask, x_zero, zero, past = body.inputs(9)
    unit = body.add("Mul", _single(body, x_scale), _single(body, scale))
    projected = body.add("Add", _whole_product(body, x, weights, x_zero, zero, unit), bias)
    with_projection(body, projected, np.dtype(np.float32), mask, past, "")


def _embedding(body: Body) -> None:
    names = body.inputs(18)
    quantised, scales, zeros = names[2:7], names[8:13], names[13:18]
    tables = [
        _real(body, table, scale, zero) if table else ""
        for table, scale, zero in zip(quantised, scales, zeros, strict=True)
    ]
    embedded(body, tables[:3], tables[3], tables[4], names[7], "", np.dtype(np.float32))


def _conv(body: Body) -> None:
    x, x_scale, x_zero, w, w_scale, w_zero, scale, zero, bias = body.inputs(9)
    factors = [_real(body, x, x_scale, x_zero), _real(body, w, w_scale, w_zero, 0)]
    if bias:
        unit = body.add("Mul", _single(body, x_scale), _single(body, w_scale))
        factors.append(body.add("Mul", body.add("Cast", bias, to=TensorProto.FLOAT), unit))
    _quantised(body, body.add("Conv", *factors, **body.attributes), scale, zero, x)


def _matrix_product(body: Body) -> None:
    a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = body.inputs(8)
    rows, columns = len(body.shape(a)) - 2, len(body.shape(b)) - 1
    factors = [_real(body, a, a_scale, a_zero, rows), _real(body, b, b_scale, b_zero, columns)]
    _quantised(body, body.add("MatMul", *factors), scale, zero, a)


_WINDOW = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")
EXPANSIONS = {
    "QuantizeLinear": _renamed("QuantizeLinear"),
    "DequantizeLinear": _renamed("DequantizeLinear"),
    "QLinearAdd": _of_two("Add"),
    "QLinearMul": _of_two("Mul"),
    "QLinearSigmoid": _of_one("Sigmoid"),
    "QLinearLeakyRelu": _of_one("LeakyRelu", "alpha"),
    "QLinearAveragePool": _pooled("AveragePool", *_WINDOW),
    "QLinearGlobalAveragePool": _pooled("GlobalAveragePool"),
    "QLinearConcat": _concat,
    "QLinearSoftmax": _softmax,
    "QLinearWhere": _where,
    "QGemm": _product,
    "MatMulIntegerToFloat": _product_to_real,
    "DynamicQuantizeMatMul": _dynamic_product,
    "QAttention": _attention,
    "QEmbedLayerNormalization": _embedding,
}
# Operators of the standard that the compiler reads as they are, in real numbers.
STANDARD_EXPANSIONS = {"QLinearConv": _conv, "QLinearMatMul": _matrix_product}
