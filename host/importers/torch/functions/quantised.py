"""Quantised torch programs: the operators of PyTorch's library `quantized_decomposed`.

Static programs have a pair of quantisation and its inverse at each tensor, with numbers for their scales.
Dynamic ones find a scale of each tensor, or of each of its rows, while they run. The bounds of the integers
may be narrower than those of their type. PyTorch takes zero points as they are: what the type of the integers
does not hold is computed with in floats.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
from torch import fx
from tvm import relax

from host.importers.torch.program.zero_points import RANGE

# Scale and zero point are numbers in the one, and tensors of one element in the others.
_FORMS = ("default", "tensor", "tensor2")
_LEAST_SCALE_OF_ROWS = 1e-5


def _type_name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _parameter(builder: relax.BlockBuilder, value: Any, dtype: str, shape: tuple[int, ...] = ()) -> Any:
    """A scale or zero point in a type and a shape."""
    if isinstance(value, int | float):
        return relax.const(np.full(shape, value, dtype), dtype)
    return builder.emit(relax.op.reshape(_converted(builder, value, dtype), shape))


def _converted(builder: relax.BlockBuilder, value: Any, dtype: str) -> Any:
    return value if str(value.ty.dtype) == dtype else builder.emit(relax.op.astype(value, dtype))


def _bounds(given: Mapping[str, Any]) -> tuple[int, int] | None:
    """The least and the greatest integer; None where these are tensors."""
    low, high = given["quant_min"], given["quant_max"]
    return (low, high) if isinstance(low, int) and isinstance(high, int) else None


def _quantised(
    builder: relax.BlockBuilder, data: Any, scale: Any, zero: Any, axis: int, given: Mapping[str, Any]
) -> Any:
    """Integers of a type within bounds; None where the bounds are tensors."""
    dtype, bounds = _type_name(given["dtype"]), _bounds(given)
    if bounds is None:
        return None
    limits = np.iinfo(dtype)
    narrow = bounds[0] > limits.min or bounds[1] < limits.max
    step, point = given.get("scale"), given.get("zero_point")
    if narrow and isinstance(step, int | float) and isinstance(point, int):
        # Before the rounding, which no bound is changed by: integers follow each other directly then.
        low, high = ((bound - point) * step for bound in bounds)
        data, narrow = builder.emit(relax.op.clip(data, low, high)), False
    made = builder.emit(relax.op.quantize(data, scale, zero, axis=axis, out_dtype=dtype))
    if narrow:
        made = builder.emit(relax.op.maximum(made, relax.const(bounds[0], dtype)))
        made = builder.emit(relax.op.minimum(made, relax.const(bounds[1], dtype)))
    return made


def _are_of(node: fx.Node, zero: Any, dtype: str) -> bool:
    """Whether a type of integers holds all zero points of an operator."""
    known = node.meta.get(RANGE)
    if known is None:
        return not isinstance(zero, int | float) and str(zero.ty.dtype) == dtype
    limits = np.iinfo(dtype)
    return bool(limits.min <= known[0] and known[1] <= limits.max)


def _along(builder: relax.BlockBuilder, value: Any, axis: int | None, rank: int) -> Any:
    """Scales or zero points as floats that meet a tensor: of all of it, or of each place of an axis."""
    if isinstance(value, int | float):
        return relax.const(float(value), "float32")
    shape = [] if axis is None else [-1 if place == axis % rank else 1 for place in range(rank)]
    return builder.emit(relax.op.reshape(_converted(builder, value, "float32"), shape))


def _quantise_in_floats(
    builder: relax.BlockBuilder, scale: Any, zero: Any, axis: int | None, given: Mapping[str, Any]
) -> Any:
    """Integers with zero points of any size, added behind the rounding; None where the bounds are tensors."""
    emit, op, bounds = builder.emit, relax.op, _bounds(given)
    if bounds is None:
        return None
    data = _converted(builder, given["input"], "float32")
    step, point = (_along(builder, one, axis, data.ty.ndim) for one in (scale, zero))
    whole = emit(op.add(emit(op.round(emit(op.divide(data, step)))), point))
    return _converted(builder, emit(op.clip(whole, *bounds)), _type_name(given["dtype"]))


def _quantise_tensor(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """Integers with one scale and zero point."""
    dtype = _type_name(given["dtype"])
    if not _are_of(node, given["zero_point"], dtype):
        return _quantise_in_floats(builder, given["scale"], given["zero_point"], None, given)
    data = _converted(builder, given["input"], "float32")
    scale = _parameter(builder, given["scale"], "float32")
    zero = _parameter(builder, given["zero_point"], dtype)
    return _quantised(builder, data, scale, zero, 0, given)


def _quantise_channels(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """Integers with a scale and a zero point for each place along an axis."""
    dtype, axis = _type_name(given["dtype"]), given["axis"]
    if not _are_of(node, given["zero_points"], dtype):
        return _quantise_in_floats(builder, given["scales"], given["zero_points"], axis, given)
    data = _converted(builder, given["input"], "float32")
    scale = _converted(builder, given["scales"], "float32")
    zero = _converted(builder, given["zero_points"], dtype)
    return _quantised(builder, data, scale, zero, axis, given)


def _real(builder: relax.BlockBuilder, node: fx.Node, data: Any, scale: Any, zero: Any, axis: int) -> Any:
    made = builder.emit(relax.op.dequantize(data, scale, zero, axis=axis, out_dtype="float32"))
    return _converted(builder, made, _type_name(node.meta["val"].dtype))


def _real_in_floats(
    builder: relax.BlockBuilder, node: fx.Node, scale: Any, zero: Any, axis: int | None, data: Any
) -> Any:
    """The numbers that integers stand for, with zero points of any size."""
    single = _converted(builder, data, "float32")
    step, point = (_along(builder, one, axis, data.ty.ndim) for one in (scale, zero))
    made = builder.emit(relax.op.multiply(builder.emit(relax.op.subtract(single, point)), step))
    return _converted(builder, made, _type_name(node.meta["val"].dtype))


def _real_tensor(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """The numbers that integers stand for."""
    data, scale, zero = given["input"], given["scale"], given["zero_point"]
    dtype = str(data.ty.dtype)
    if not _are_of(node, zero, dtype):
        return _real_in_floats(builder, node, scale, zero, None, data)
    parameters = _parameter(builder, scale, "float32"), _parameter(builder, zero, dtype)
    return _real(builder, node, data, *parameters, 0)


def _real_channels(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    data, scales, zeros = given["input"], given["scales"], given["zero_points"]
    dtype = str(data.ty.dtype)
    if zeros is not None and not _are_of(node, zeros, dtype):
        return _real_in_floats(builder, node, scales, zeros, given["axis"], data)
    scales = _converted(builder, scales, "float32")
    zeros = relax.const(0, dtype) if zeros is None else _converted(builder, zeros, dtype)
    return _real(builder, node, data, scales, zeros, given["axis"])


def _rounded(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """What quantisation leaves of numbers, as it is trained with; which ones are in bounds is not computed.

    None for more than 8 bits, for zero points that are floats or of another type, and where that is read.
    """
    low, high, data = given["quant_min"], given["quant_max"], given["self"]
    dtype = "int8" if low >= -128 and high <= 127 else "uint8" if low >= 0 and high <= 255 else None
    read = {user.args[1] for user in node.users}
    point = given["zero_point"]
    is_whole = isinstance(point, int) or (isinstance(point, tvm.ir.Expr) and "int" in str(point.ty.dtype))
    if dtype is None or str(data.ty.dtype) != "float32" or not read <= {0} or not is_whole:
        return None
    if not _are_of(node, point, dtype):
        return None
    shape = () if "axis" not in given else tuple(given["scale"].ty.shape)
    scale = _parameter(builder, given["scale"], "float32", shape)
    zero = _parameter(builder, given["zero_point"], dtype, shape)
    axis = given.get("axis", 0)
    made = _quantised(builder, data, scale, zero, axis, {**given, "dtype": dtype})
    return builder.emit(relax.op.dequantize(made, scale, zero, axis=axis, out_dtype="float32")), None


def _scale_of_tensor(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """Scale and zero point of a tensor by its smallest and largest element, of which 0 is between."""
    emit, op, (low, high) = builder.emit, relax.op, (given["quant_min"], given["quant_max"])
    data = _converted(builder, given["input"], "float32")
    zero, width = (relax.const(float(number), "float32") for number in (0, high - low))
    least, most = emit(op.minimum(emit(op.min(data)), zero)), emit(op.maximum(emit(op.max(data)), zero))
    scale = emit(op.divide(emit(op.subtract(most, least)), width))
    scale = emit(op.maximum(scale, relax.const(given["eps"], "float32")))
    steps = emit(op.round(emit(op.divide(least, scale))))
    point = emit(op.clip(emit(op.subtract(relax.const(float(low), "float32"), steps)), low, high))
    return _as_made(builder, node, scale, point)


def _symmetric_scale_of_tensor(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """The scale of a tensor by its largest size; the zero point is that of the type."""
    emit, op, width = builder.emit, relax.op, (given["quant_max"] - given["quant_min"]) / 2
    largest = emit(op.max(emit(op.abs(_converted(builder, given["input"], "float32")))))
    scale = emit(op.divide(largest, relax.const(width, "float32")))
    scale = emit(op.maximum(scale, relax.const(given["eps"], "float32")))
    middle = 128.0 if _type_name(given["dtype"]) == "uint8" else 0.0
    return _as_made(builder, node, scale, relax.const(middle, "float32"))


def _scale_of_rows(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """A scale for each row along the last axis, by its largest size; zero points are 0."""
    if _type_name(given["dtype"]) != "int8":
        return None
    emit, op = builder.emit, relax.op
    largest = emit(op.max(emit(op.abs(_converted(builder, given["input"], "float32"))), -1, True))
    bounded = emit(op.maximum(largest, relax.const(_LEAST_SCALE_OF_ROWS, "float32")))
    scale = emit(op.divide(bounded, relax.const(127.0, "float32")))
    return _as_made(builder, node, scale, emit(op.zeros_like(scale)))


def _asymmetric_scale_of_rows(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """Scale and zero point for each row along the last axis; integers are -128 to 127.

    The zero point is made from the end of the range that it is nearer to, as in PyTorch and XNNPACK.
    """
    emit, op, data = builder.emit, relax.op, _converted(builder, given["input"], "float32")
    zero, width, least_scale, low, high = (
        relax.const(number, "float32")
        for number in (0.0, 255.0, float(np.finfo(np.float32).eps), -128.0, 127.0)
    )
    least = emit(op.minimum(emit(op.min(data, -1, True)), zero))
    most = emit(op.maximum(emit(op.max(data, -1, True)), zero))
    scale = emit(op.maximum(emit(op.divide(emit(op.subtract(most, least)), width)), least_scale))
    below, above = emit(op.divide(least, scale)), emit(op.divide(most, scale))
    error = emit(op.add(emit(op.add(low, below)), emit(op.add(high, above))))
    points = emit(op.subtract(low, below)), emit(op.subtract(high, above))
    point = emit(op.where(emit(op.greater(error, zero)), *points))
    return _as_made(builder, node, scale, emit(op.round(emit(op.clip(point, -128, 127)))))


def _as_made(builder: relax.BlockBuilder, node: fx.Node, *values: Any) -> tuple[Any, ...]:
    """Results in the shapes and types that the program says."""
    made = node.meta["val"]
    shaped = [
        builder.emit(relax.op.reshape(value, list(one.shape)))
        for value, one in zip(values, made, strict=True)
    ]
    types = (_type_name(one.dtype) for one in made)
    return tuple(_converted(builder, value, dtype) for value, dtype in zip(shaped, types, strict=True))


def _quantise_rows(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """Integers of rows along the last axis; the zero points are added before the rounding, as in PyTorch."""
    emit, op, bounds = builder.emit, relax.op, _bounds(given)
    if bounds is None:
        return None
    data = _converted(builder, given["input"], "float32")
    scales, zeros = (_converted(builder, given[name], "float32") for name in ("scales", "zero_points"))
    moved = emit(op.add(emit(op.multiply(data, emit(op.divide(relax.const(1.0, "float32"), scales)))), zeros))
    bounded = emit(op.clip(emit(op.round(moved)), *bounds))
    return _converted(builder, bounded, _type_name(given["dtype"]))


def _real_rows(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    names = ("input", "zero_points", "scales")
    data, zeros, scales = (_converted(builder, given[name], "float32") for name in names)
    made = builder.emit(relax.op.multiply(builder.emit(relax.op.subtract(data, zeros)), scales))
    return _converted(builder, made, _type_name(node.meta["val"].dtype))


CONVERTERS: Mapping[str, Any] = {
    **dict.fromkeys((f"quantize_per_tensor.{form}" for form in _FORMS), _quantise_tensor),
    **dict.fromkeys((f"dequantize_per_tensor.{form}" for form in _FORMS), _real_tensor),
    **dict.fromkeys(
        (f"fake_quantize_per_{part}_affine_cachemask.default" for part in ("tensor", "channel")), _rounded
    ),
    "quantize_per_channel.default": _quantise_channels,
    "dequantize_per_channel.default": _real_channels,
    "choose_qparams.tensor": _scale_of_tensor,
    "choose_qparams_symmetric.tensor": _symmetric_scale_of_tensor,
    "choose_qparams_per_token.default": _scale_of_rows,
    "choose_qparams_per_token_asymmetric.default": _asymmetric_scale_of_rows,
    "_choose_qparams_per_token_asymmetric_impl.default": _asymmetric_scale_of_rows,
    "quantize_per_token.default": _quantise_rows,
    "dequantize_per_token.default": _real_rows,
}
