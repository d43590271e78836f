"""Activations, and products and convolutions with an activation behind them."""

from __future__ import annotations

import math

from host.importers.onnx.contributed.body import Body


def _gelu(body: Body) -> None:
    x, bias = body.inputs(2)
    value = body.add("Add", x, bias) if bias else x
    kind = body.dtype(x)
    inner = body.add("Erf", body.add("Div", value, body.constant(math.sqrt(2), kind)))
    scaled = body.add("Mul", value, body.add("Add", inner, body.constant(1, kind)))
    body.set_output(body.add("Mul", scaled, body.constant(0.5, kind)))


def _fast_gelu(body: Body) -> None:
    """0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))."""
    x, bias = body.inputs(2)
    value = body.add("Add", x, bias) if bias else x
    kind = body.dtype(x)
    cube = body.add("Mul", body.add("Mul", value, value), value)
    inner = body.add("Add", value, body.add("Mul", cube, body.constant(0.044715, kind)))
    tanh = body.add("Tanh", body.add("Mul", inner, body.constant(math.sqrt(2 / math.pi), kind)))
    scaled = body.add("Mul", value, body.add("Add", tanh, body.constant(1, kind)))
    body.set_output(body.add("Mul", scaled, body.constant(0.5, kind)))


def _quick_gelu(body: Body) -> None:
    (x,) = body.inputs(1)
    alpha = body.constant(body.attribute("alpha", 1.702), body.dtype(x))
    body.set_output(body.add("Mul", x, body.add("Sigmoid", body.add("Mul", x, alpha))))


def _fused_conv(body: Body) -> None:
    x, weights, bias, addend = body.inputs(4)
    own = {"activation", "activation_params"}
    attributes = {name: value for name, value in body.attributes.items() if name not in own}
    made = body.add("Conv", x, weights, *([bias] if bias else []), **attributes)
    made = body.add("Add", made, addend) if addend else made
    parameters = list(body.attribute("activation_params", []))
    body.set_output(_activated(body, made, parameters))


def _fused_gemm(body: Body) -> None:
    a, b, c = body.inputs(3)
    attributes = {n: v for n, v in body.attributes.items() if not n.startswith("activation")}
    made = body.add("Gemm", a, b, *([c] if c else []), **attributes)
    named = [f"activation_{name}" for name in ("alpha", "beta", "gamma")]
    parameters = [body.attributes[name] for name in named if name in body.attributes]
    body.set_output(_activated(body, made, parameters))


def _activated(body: Body, value: str, parameters: list[float]) -> str:
    """The activation that a fused operator names, with its parameters in order."""
    name = body.attribute("activation", "")
    names = {
        "": (),
        "Relu": (),
        "Sigmoid": (),
        "Tanh": (),
        "LeakyRelu": ("alpha",),
        "HardSigmoid": ("alpha", "beta"),
        "Clip": ("min", "max"),
    }.get(name)
    if names is None or len(parameters) > max(len(names), 2):
        raise body.fail(f"activation {name[:40]!r} has no conversion")
    if not name:
        return value
    given = dict(zip(names, parameters, strict=False))
    if name == "Clip" and body.opset >= 11:
        kind = body.dtype(body.inputs(1)[0])
        bounds = [body.constant(given[one], kind) for one in names if one in given]
        return body.add("Clip", value, *bounds)
    return body.add(name, value, **given)


def _fused_product(body: Body) -> None:
    a, b = body.inputs(2)
    body.without(transBatchA=body.attribute("transBatchA", 0), transBatchB=body.attribute("transBatchB", 0))
    sides = [
        _transposed(body, side) if body.attribute(name, 0) else side
        for side, name in ((a, "transA"), (b, "transB"))
    ]
    product = body.add("MatMul", *sides)
    alpha = body.attribute("alpha", 1.0)
    if alpha != 1.0:
        product = body.add("Mul", product, body.constant(alpha, body.dtype(a)))
    body.set_output(product)


def _transposed(body: Body, value: str) -> str:
    """The last two axes exchanged; a vector as it is."""
    order = list(range(len(body.shape(value))))
    if len(order) < 2:
        return value
    order[-2:] = [order[-1], order[-2]]
    return body.add("Transpose", value, perm=order)


def _lower_or_upper(body: Body) -> None:
    value, diagonal = body.inputs(2)
    if body.opset < 14:
        raise body.fail("the file's version of the standard has no Trilu: export it with opset 14 or later")
    inputs = [value, diagonal] if diagonal else [value]
    body.set_output(body.add("Trilu", *inputs, upper=body.attribute("upper", 1)))


EXPANSIONS = {
    "Gelu": _gelu,
    "BiasGelu": _gelu,
    "FastGelu": _fast_gelu,
    "QuickGelu": _quick_gelu,
    "FusedConv": _fused_conv,
    "FusedGemm": _fused_gemm,
    "FusedMatMul": _fused_product,
    "TransposeMatMul": _fused_product,
    "Trilu": _lower_or_upper,
}
