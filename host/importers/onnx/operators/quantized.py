"""Operators on quantised tensors.

Integers meet in int32 without their zero points, exactly. `host.lowering.passes.integers` finds these forms.
MatMulInteger is TVM's, which is of the same form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from onnx import TensorProto, helper
from tvm import relax

from host.importers.onnx.operators.context import (
    Attributes,
    Context,
    Converter,
    Inputs,
    constant,
    constant_value,
    convert_with_tvm,
    dtype_of,
    get,
    known,
    scalar,
    shape_of,
)
from host.importers.onnx.operators.images import spatial


def _quantize(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    """TVM's, of numbers and scales in single precision: a quotient of halves may be rounded to a tie.

    Weights that the file has as floats become integers, as those of other files are.
    """
    value, scale, *zero = inputs
    _check_scale(context, scale)
    known = [constant_value(one) for one in inputs if one is not None]
    if all(one is not None for one in known):
        made = _integers_of(known, attributes)
        if made is not None:
            return constant(made)
    return convert_with_tvm(context, [_single(context, value), _single(context, scale), *zero], attributes)


def _dequantize(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    """TVM's, in single precision; numbers whose scale is a half are then rounded to such."""
    value, scale, *zero = inputs
    _check_scale(context, scale)
    if attributes.get("block_size"):
        return _of_blocks(context, inputs, attributes)
    made = convert_with_tvm(context, [value, _single(context, scale), *zero], attributes)
    return made if dtype_of(scale) not in _HALVES else relax.op.astype(made, dtype_of(scale))


def _check_scale(context: Context, scale: Any) -> None:
    """Refuse a scale that is infinite or no number, of which every runtime makes other numbers.

    Raises:
        ImportFailed: it is one.
    """
    values = constant_value(scale)
    if values is not None and not np.isfinite(values.astype(np.float32)).all():
        raise context.fail(
            "a scale is infinite: quantise the model again, without tensors that hold infinities (masks)"
        )


def _of_blocks(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    """What weights stand for that have a scale, and perhaps a zero point, for each block along an axis."""
    value, scale = (
        known(context, inputs, place, what) for place, what in ((0, "a weight"), (1, "its scale"))
    )
    zero = known(context, inputs, 2, "its zero point")
    if value is None or scale is None:
        raise context.fail("a weight or its scale is missing")
    axis, block = int(attributes.get("axis", 1)), int(attributes["block_size"])
    length = value.shape[axis]
    blocks = [
        -(-size // block) if place == axis % value.ndim else size for place, size in enumerate(value.shape)
    ]
    if list(scale.shape) != blocks or (zero is not None and zero.shape != scale.shape):
        raise context.fail(f"scales of shape {list(scale.shape)} are not those of blocks of {block}")
    scales, zeros = (
        np.repeat(one.astype(np.float32), min(block, length), axis).take(np.arange(length), axis)
        for one in (scale, np.zeros_like(scale) if zero is None else zero)
    )
    return constant(((value.astype(np.float32) - zeros) * scales).astype(scale.dtype))


def _integers_of(parts: Sequence[Any], attributes: Attributes) -> np.ndarray | None:
    """Constants as QuantizeLinear gives them: ties to even, saturated; None for other than 8 and 16 bits."""
    value, scale, *zero = parts
    kind = int(attributes.get("output_dtype", 0)) or TensorProto.UINT8
    point = zero[0] if zero else np.zeros((), helper.tensor_dtype_to_np_dtype(kind))
    if point.dtype.name not in _INTEGERS or attributes.get("block_size"):
        return None
    axis = int(attributes.get("axis", 1)) if value.ndim > 1 else 0
    shape = [-1 if place == axis % max(value.ndim, 1) else 1 for place in range(value.ndim)]
    single, point = (one.reshape(()) if one.size == 1 else one.reshape(shape) for one in (scale, point))
    with np.errstate(all="ignore"):
        whole = np.rint(value.astype(np.float32) / single.astype(np.float32)).astype(np.float64) + point
    if np.isnan(whole).any():
        return None
    limits = np.iinfo(point.dtype)
    made: np.ndarray = np.clip(whole, limits.min, limits.max).astype(point.dtype)
    return made


def _single(context: Context, value: Any) -> Any:
    return context.emit(relax.op.astype(value, "float32")) if dtype_of(value) in _HALVES else value


def _qlinear_matmul(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    """Matrix product of quantised numbers; scales and zero points per tensor, row of A or column of B."""
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = inputs
    left = _difference(context, a, _by_row(context, a_zero, len(shape_of(context, a))))
    right = _difference(context, b, b_zero)
    product = context.emit(relax.op.matmul(left, right, "int32"))
    rank = len(shape_of(context, product))
    scale = context.emit(relax.op.multiply(_by_row(context, a_scale, rank), context.emit(b_scale)))
    return _requantized(context, product, scale, y_scale, y_zero)


def _qlinear_conv(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    """Convolution of quantised numbers, weights per tensor or per output channel, bias in int32."""
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = inputs[:8]
    total = _integer_convolution(context, [x, w, x_zero, w_zero], attributes)
    rank = len(shape_of(context, x))
    bias = get(inputs, 8)
    if bias is not None:
        total = context.emit(relax.op.add(total, _by_channel(context, bias, rank)))
    scale = context.emit(relax.op.multiply(_flat(context, x_scale), _by_channel(context, w_scale, rank)))
    return _requantized(context, total, scale, y_scale, y_zero)


def _integer_convolution(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    """Convolution of bytes into int32; what lies beyond the border counts as the zero point."""
    x, w, x_zero, w_zero = (get(inputs, index) for index in range(4))
    rank = len(shape_of(context, x))
    data = _difference(context, x, None if x_zero is None else _flat(context, x_zero))
    weight = _difference(context, w, None if w_zero is None else _per_output(context, w_zero, rank))
    convert = spatial.CONVERTERS["Conv"]
    return context.emit(convert(replace(context, operator="Conv"), [data, weight], attributes))


def _dynamic_quantize(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    """Unsigned bytes over the range of the values, which includes zero; all zeros have scale 1."""
    value = inputs[0]
    zero = scalar(0, "float32")
    highest = context.emit(relax.op.maximum(relax.op.max(value), zero))
    lowest = context.emit(relax.op.minimum(relax.op.min(value), zero))
    width = context.emit(relax.op.divide(relax.op.subtract(highest, lowest), scalar(255, "float32")))
    scale = context.emit(relax.op.where(relax.op.equal(width, zero), scalar(1, "float32"), width))
    point = context.emit(relax.op.subtract(zero, relax.op.divide(lowest, scale)))
    bounded = relax.op.round(relax.op.clip(point, 0, 255))
    zero_point = context.emit(relax.op.astype(bounded, "uint8"))
    return [relax.op.quantize(value, scale, zero_point, axis=0, out_dtype="uint8"), scale, zero_point]


def _difference(context: Context, value: Any, zero: Any) -> Any:
    """Integers without their zero point, in int32."""
    wide = context.emit(relax.op.astype(value, "int32"))
    if zero is None:
        return wide
    return context.emit(relax.op.subtract(wide, context.emit(relax.op.astype(zero, "int32"))))


def _requantized(context: Context, total: Any, scale: Any, y_scale: Any, y_zero: Any) -> Any:
    """The product in the result's scale: one factor, as ONNX Runtime computes it."""
    single = relax.op.astype(_flat(context, y_scale), "float32")
    ratio = context.emit(relax.op.divide(relax.op.astype(scale, "float32"), single))
    real = context.emit(relax.op.multiply(relax.op.astype(total, "float32"), ratio))
    one, zero = scalar(1, "float32"), _flat(context, y_zero)
    return relax.op.quantize(real, one, zero, axis=0, out_dtype=dtype_of(y_zero))


def _flat(context: Context, value: Any) -> Any:
    """A parameter of the whole tensor without dimensions."""
    if int(np.prod(shape_of(context, value))) != 1:
        raise context.fail("a scale or zero point of activations differs between channels")
    return context.emit(relax.op.reshape(value, ()))


def _by_row(context: Context, value: Any, rank: int) -> Any:
    """A scale or zero point per row, shaped to meet a matrix."""
    value = context.emit(value)
    shape = shape_of(context, value)
    if len(shape) != 1 or shape[0] == 1 or rank < 2:
        return value
    return context.emit(relax.op.reshape(value, [shape[0], 1]))


def _by_channel(context: Context, value: Any, rank: int) -> Any:
    """A parameter per output channel, shaped to meet a tensor with channels second."""
    count = int(np.prod(shape_of(context, value)))
    if count == 1:
        return context.emit(relax.op.reshape(value, ()))
    return context.emit(relax.op.reshape(value, [1, count, *(1,) * (rank - 2)]))


def _per_output(context: Context, value: Any, rank: int) -> Any:
    """A parameter per output channel, shaped to meet weights with output channels first."""
    count = int(np.prod(shape_of(context, value)))
    return context.emit(relax.op.reshape(value, [count, *(1,) * (rank - 1)] if count > 1 else ()))


_HALVES = ("float16", "bfloat16")
_INTEGERS = ("int8", "uint8", "int16", "uint16")
CONVERTERS: dict[str, Converter] = {
    "ConvInteger": _integer_convolution,
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": _dynamic_quantize,
    "QLinearConv": _qlinear_conv,
    "QLinearMatMul": _qlinear_matmul,
    "QuantizeLinear": _quantize,
}
