"""Arithmetic that TVM's frontend lacks or gets wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import helper
from tvm import relax, te, tirx

from host.importers.onnx.operators.context import (
    Attributes,
    Context,
    Converter,
    Inputs,
    constant_value,
    convert_with_tvm,
    dtype_of,
    get,
    scalar,
    shape_of,
)
from host.importers.shared.determinant import determinants


def _pow(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    """The result has the type of the base; whole numbers to powers of floats are computed in float64."""
    base, exponent = inputs
    dtype, of_exponent = dtype_of(base), dtype_of(exponent)
    if np.dtype(dtype).kind == "f" or dtype == "bfloat16":
        if of_exponent != dtype:
            exponent = context.emit(relax.op.astype(exponent, dtype))
        return relax.op.power(base, exponent)
    whole = np.dtype(of_exponent).kind in "iu"
    wide = "float64" if not whole else dtype if of_exponent == dtype else "int64"
    parts = [context.emit(relax.op.astype(value, wide)) for value in (base, exponent)]
    return relax.op.astype(context.emit(relax.op.power(*parts)), dtype)


def _in_singles(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    """TVM's, which is of single precision alone."""
    value, dtype = inputs[0], dtype_of(inputs[0])
    if dtype == "float32":
        return convert_with_tvm(context, inputs, attributes)
    wide = context.emit(relax.op.astype(value, "float32"))
    return relax.op.astype(context.emit(convert_with_tvm(context, [wide], attributes)), dtype)


def _cast(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    wanted: np.dtype[Any] = helper.tensor_dtype_to_np_dtype(attributes["to"])
    made = _whole(context, inputs[0], wanted)
    return convert_with_tvm(context, inputs, attributes) if made is None else made


def _cast_like(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    value, like = inputs
    whole = not isinstance(like, relax.ShapeExpr) and dtype_of(like).startswith(("int", "uint"))
    made = _whole(context, value, np.dtype(dtype_of(like))) if whole else None
    return convert_with_tvm(context, inputs, attributes) if made is None else made


def _whole(context: Context, value: Any, wanted: np.dtype[Any]) -> Any:
    """Floats that are computed, as whole numbers; None for others.

    ONNX leaves open what becomes of infinities, NaN and numbers that the type does not hold: it is what the
    processor makes of them. TVM would compute remainders, also of the numbers that the type holds.
    """
    if wanted.kind not in "iu" or not isinstance(value, relax.Var) or "float" not in dtype_of(value):
        return None
    return relax.op.astype(value, wanted.name)


def _bit_cast(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    dtype = helper.tensor_dtype_to_np_dtype(attributes["to"]).name
    source = dtype_of(inputs[0])
    if np.dtype(source).itemsize != np.dtype(dtype).itemsize:
        raise context.fail(f"{source} and {dtype} are not of the same size")
    if "bool" in (source, dtype):
        raise context.fail("truth values have no bits to read")
    return context.compute(lambda data: _elementwise(data, lambda x: tirx.reinterpret(dtype, x)), inputs[0])


def _elementwise(data: te.Tensor, function: Any) -> te.Tensor:
    return te.compute(data.shape, lambda *at: function(data(*at)), name="elementwise")


def _is_inf(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    value = inputs[0]
    positive = relax.op.equal(value, scalar(np.inf, dtype_of(value)))
    negative = relax.op.equal(value, scalar(-np.inf, dtype_of(value)))
    wanted = (attributes.get("detect_negative", 1), attributes.get("detect_positive", 1))
    if wanted == (1, 1):
        return relax.op.logical_or(positive, negative)
    if wanted == (0, 0):
        return relax.op.zeros(shape_of(context, value), "bool")
    return negative if wanted[0] else positive


def _cumulative(product: bool) -> Converter:
    """Sums or products along an axis; the axis is a tensor, and if the model computes it, all are tried."""

    def along(value: Any, axis: int, exclusive: bool) -> Any:
        function = relax.op.cumprod if product else relax.op.cumsum
        return function(value, axis, None, exclusive)

    def convert(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
        value, axis = inputs[0], constant_value(inputs[1])
        rank = len(shape_of(context, value))
        exclusive, reverse = bool(attributes.get("exclusive", 0)), attributes.get("reverse", 0)
        axes = range(rank) if axis is None else [int(axis.reshape(-1)[0]) % rank]
        results = []
        for number in axes:
            given = context.emit(relax.op.flip(value, number)) if reverse else value
            result = context.emit(along(given, number, exclusive))
            results.append(context.emit(relax.op.flip(result, number)) if reverse else result)
        chosen = results[0]
        for number, result in list(enumerate(results))[1:]:
            dtype = dtype_of(inputs[1])
            given = context.emit(relax.op.reshape(inputs[1], ()))
            here = relax.op.logical_or(
                relax.op.equal(given, scalar(number, dtype)),
                relax.op.equal(given, scalar(number - rank, dtype)),
            )
            chosen = context.emit(relax.op.where(here, result, chosen))
        return chosen

    return convert


def _dropout(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    training = get(inputs, 2)
    if training is not None:
        active = constant_value(training)
        ratio = constant_value(get(inputs, 1))
        nothing = ratio is not None and not ratio.any()
        if not nothing and (active is None or active.any()):
            raise context.fail("training draws at random")
    shape = shape_of(context, inputs[0])
    kept = relax.op.broadcast_to(scalar(True, "bool"), shape)
    return [inputs[0], kept][: len(context.outputs)]


def _det(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    return determinants(context.builder, inputs[0])


def _gemm(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    """Of the factor 0, what is added does not count, whatever is in it."""
    added = get(inputs, 2) if attributes.get("beta", 1.0) else None
    return convert_with_tvm(context, [*inputs[:2], added], attributes)


def _of_all(function: Callable[[Any, Any], Any]) -> Converter:
    """Maxima or minima of any number of tensors, one after the other."""

    def convert(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
        result = inputs[0]
        for other in inputs[1:]:
            result = context.emit(function(result, other))
        return result

    return convert


def _thresholded_relu(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    """A choice: TVM's product with a truth value makes NaN of what is infinite."""
    value, dtype = inputs[0], dtype_of(inputs[0])
    above = context.emit(relax.op.greater(value, scalar(attributes.get("alpha", 1.0), dtype)))
    return relax.op.where(above, value, scalar(0, dtype))


CONVERTERS: dict[str, Converter] = {
    "BitCast": _bit_cast,
    "Cast": _cast,
    "CastLike": _cast_like,
    "CumProd": _cumulative(product=True),
    "CumSum": _cumulative(product=False),
    "Det": _det,
    "Dropout": _dropout,
    **dict.fromkeys(("Elu", "Selu"), _in_singles),
    "Gemm": _gemm,
    "IsInf": _is_inf,
    "Max": _of_all(relax.op.maximum),
    "Min": _of_all(relax.op.minimum),
    "Pow": _pow,
    "ThresholdedRelu": _thresholded_relu,
}
