"""Quantisation and its inverse (ONNX QuantizeLinear and DequantizeLinear).

"dequantize" is (x - zero) * scale; "quantize" is round(x / scale) + zero, ties to even, saturated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import tirx
from tvm.ir import Call

from host.lowering.builder import Builder
from host.lowering.expressions.stage import Expression, dtype_of
from host.lowering.graph import Value, normalise_axis
from host.lowering.ops.forms import elementwise
from host.lowering.reader.call import OperatorCall
from host.lowering.spec import OpSpec, Reader
from host.lowering.types import quantised_types

_INTEGERS = {"quantize": quantised_types(), "dequantize": (*quantised_types(), "int32")}
# Operations that take elements of their first input, or of all, as they are.
_MOVEMENTS = frozenset({"reshape", "transpose", "slice", "take", "concat"})
# Added to a number below 2^22, this leaves the nearest whole number, ties to even, in the low bits of it:
# fp32 has no digits behind the point up here. The C library's functions for it are calls on processors that
# lack the instruction, and a conversion of the result is saved.
_ROUNDER = 1.5 * 2.0**23
_ROUNDER_BITS = int(np.float32(_ROUNDER).view(np.int32))
_WIDE_BITS = 16
_REINTERPRET = tirx.reinterpret("int32", tirx.const(0.0, "float32")).op


def _per_axis(builder: Builder, value: Value, call: OperatorCall) -> Value:
    """A scale or zero point in a shape that broadcasts to the tensor."""
    rank = len(call.shape)
    if value.size == 1:
        return builder.reshape(value, ())
    axis = normalise_axis(int(call.attrs.axis), rank)
    return builder.reshape(value, tuple(value.size if i == axis else 1 for i in range(rank)))


def _along_axis(name: str) -> Reader:
    def read(builder: Builder, call: OperatorCall) -> Value | None:
        data, scale, zero = call.value(0), call.value(1), call.value(2)
        source, made = (call.dtype, data.dtype) if name == "dequantize" else (data.dtype, call.dtype)
        if (source, scale.dtype) != ("float32", "float32") or made not in _INTEGERS[name]:
            return None
        parameters = [_per_axis(builder, value, call) for value in (scale, zero)]
        if name == "quantize":
            moved = _moved_integers(builder, data, parameters, call.dtype)
            if moved is not None:
                return moved
        return builder.one(name, [data, *parameters], call.shape, call.dtype)

    return read


def _moved_integers(builder: Builder, data: Value, parameters: Sequence[Value], dtype: str) -> Value | None:
    """A movement of integers where the file moves the floats that they stand for.

    Quantised files have a pair of operations around each movement. With equal scales and zero points
    quantize(move(dequantize(x))) is move(x), exactly: (n * scale) / scale is within a rounding of n. Of a
    concatenation the parts with other scales are quantised before they are joined.
    """
    node = data.producer
    if node is None or node.op not in _MOVEMENTS or any(one.size != 1 for one in parameters):
        return None
    count = len(node.inputs) if node.op == "concat" else 1
    moved = [_integers_of(value, parameters, dtype) for value in node.inputs[:count]]
    if count > 1 and all(_is_dequantised(value) for value in node.inputs):
        parts = zip(moved, node.inputs, strict=True)
        moved = [
            builder.one("quantize", [part, *parameters], part.shape, dtype) if one is None else one
            for one, part in parts
        ]
    inputs = [one for one in moved if one is not None]
    if len(inputs) < count:
        return None
    return builder.one(node.op, [*inputs, *node.inputs[count:]], data.shape, dtype, **node.attrs)


def _is_dequantised(value: Value) -> bool:
    return value.producer is not None and value.producer.op == "dequantize"


def _integers_of(value: Value, parameters: Sequence[Value], dtype: str) -> Value | None:
    """The integers of a type that stand for `value` with a scale and a zero point, where they are at hand."""
    node = value.producer
    if node is None or node.op != "dequantize" or node.inputs[0].dtype != dtype:
        return None
    equal = all(_equal(own, other) for own, other in zip(node.inputs[1:], parameters, strict=True))
    return node.inputs[0] if equal else None


def _equal(one: Value, other: Value) -> bool:
    """Whether two parameters are the same constant number, for a whole tensor."""
    if one.data is None or other.data is None or one.size != 1 or other.size != 1:
        return False
    return one.dtype == other.dtype and one.scalar() == other.scalar()


def quantized(args: Sequence[Expression], attrs: Any, dtype: str) -> Expression:
    """Results of up to 16 bits. The bounds are whole numbers, so that they may come before the rounding."""
    value, scale, zero = args
    quotient = _quotient(value, scale, np.iinfo(dtype).bits)
    limits, shift, offset = np.iinfo(dtype), zero.astype("float32"), zero.astype("int32")
    low, high = (tirx.const(float(limit), "float32") - shift for limit in (limits.min, limits.max))
    rounded = tirx.max(tirx.min(quotient, high), low) + tirx.const(_ROUNDER, "float32")
    bits = tirx.reinterpret("int32", rounded)
    return (bits + (offset - tirx.const(_ROUNDER_BITS, "int32"))).astype(dtype)


def _quotient(value: Expression, scale: Expression, bits: int) -> Expression:
    """`value` / `scale` as a number that is then rounded to so many bits.

    Of 16 bits it is a product with the reciprocal of a scale that is known: a division takes as long as ten
    products, and what a product is off by decides of one in some hundred numbers, by one step of 65,536.
    """
    if _is_one(scale):
        return value
    if bits < _WIDE_BITS or not isinstance(scale, tirx.FloatImm):
        return value / scale
    with np.errstate(all="ignore"):
        factor = np.float32(1.0) / np.float32(scale.value)
    usable = np.isfinite(factor) and factor >= np.finfo(np.float32).tiny
    return value * tirx.const(float(factor), "float32") if usable else value / scale


def _dequantize(args: Sequence[Expression], attrs: Any, dtype: str) -> Expression:
    """`(value - zero) * scale`; the difference is taken in int32, as ONNX defines it."""
    value, scale, zero = args
    difference = float_difference(value, zero.astype("int32"), dtype)
    return difference if _is_one(scale) else difference * scale


def float_difference(value: Expression, zero: Expression, dtype: str = "float32") -> Expression:
    """`value` - `zero` as a float, exactly, for a whole `value` of up to 16 bits.

    A number that is quantised in the same function is not narrowed for that and widened again. In fp32 it
    would take one operation less, (x + rounder) - rounder, which compilers take for x.

    Args:
        value: of a quantised type.
        zero: of int32.
        dtype: of the result.
    """
    wide = value.value if _is_quantised_here(value) else value.astype("int32")
    return (wide - zero).astype(dtype)


def _is_quantised_here(value: Expression) -> bool:
    """Whether an expression is what `quantized` or `rounded` made: the narrowed low bits of a bounded sum."""
    if not isinstance(value, tirx.Cast) or not isinstance(value.value, (tirx.Add, tirx.Sub)):
        return False
    bits = value.value.a
    if not isinstance(bits, Call) or not bits.op.same_as(_REINTERPRET):
        return False
    return isinstance(value.value.b, tirx.IntImm) and dtype_of(bits.args[0]) == "float32"


def rounded(value: Expression, dtype: str, zero: Expression | None = None) -> Expression:
    """The nearest whole number of `value` + `zero`, ties to even, saturated; of up to 16 bits.

    The zero point is added after the bounds and before the rounding. The bounds keep the compiler from fusing
    the addition with a product that `value` may be.
    """
    limits = np.iinfo(dtype)
    shift = tirx.const(0.0, "float32") if zero is None else zero
    low, high = (tirx.const(float(limit), "float32") - shift for limit in (limits.min, limits.max))
    whole = tirx.max(tirx.min(value, high), low)
    whole = (whole if zero is None else whole + zero) + tirx.const(_ROUNDER, "float32")
    return (tirx.reinterpret("int32", whole) - tirx.const(_ROUNDER_BITS, "int32")).astype(dtype)


def _is_one(scale: Expression) -> bool:
    return isinstance(scale, tirx.FloatImm) and float(scale.value) == 1.0


# Constants are not folded while the model is read: weights keep their integers.
SPECS: tuple[OpSpec, ...] = (
    elementwise("quantize", quantized, read={"quantize": _along_axis("quantize")}),
    elementwise("dequantize", _dequantize, read={"dequantize": _along_axis("dequantize")}),
)
