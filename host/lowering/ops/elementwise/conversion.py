"""Conversion of elements to another numeric type, and to the numbers that one of half precision has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
from tvm import tirx

from host.lowering.builder import Builder
from host.lowering.expressions.math import bind
from host.lowering.expressions.stage import Expression, dtype_of
from host.lowering.expressions.truth import nonzero
from host.lowering.graph import Value
from host.lowering.ops.forms import elementwise, of_one
from host.lowering.reader.call import OperatorCall
from host.lowering.spec import OpSpec
from host.lowering.types import ROUNDED, numeric_type
from host.tensor_ir.opaque import opaque

# Processors make integers of 32 or 64 bits, of which ONNX Runtime and torch take the lowest bits. Without
# that, LLVM may make anything of a number that the type does not hold, such as an end of the type.
_BY_WAY_OF = {**dict.fromkeys(("int8", "uint8", "int16", "uint16"), "int32"), "uint32": "int64"}


def _read(builder: Builder, call: OperatorCall) -> Value:
    return builder.cast(call.value(0), call.dtype)


def _cast(args: Sequence[Expression], attrs: Any, dtype: str) -> Expression:
    value = args[0]
    source = dtype_of(value)
    if source == dtype:
        return value
    if dtype == "bool":
        return nonzero(value)
    if dtype in _BY_WAY_OF and numeric_type(source).is_float:
        value = tirx.Cast(_BY_WAY_OF[dtype], value)
    return tirx.Cast(dtype, value)


def _to_float16(value: Expression) -> Expression:
    return tirx.Cast("float32", tirx.Cast("float16", value))


def _to_bfloat16(value: Expression) -> Expression:
    """The upper 16 bits, rounded to nearest, ties to even: TVM leaves out a conversion and its opposite."""

    def nearest(bits: Expression) -> Expression:
        odd = (bits >> tirx.const(16, "uint32")) & tirx.const(1, "uint32")
        upper = (bits + odd + tirx.const(0x7FFF, "uint32")) & tirx.const(0xFFFF0000, "uint32")
        return tirx.reinterpret("float32", upper)

    def of(number: Expression) -> Expression:
        made = bind(tirx.reinterpret("uint32", number), nearest)
        # The bits of a NaN may become those of a number.
        return tirx.Select(opaque(tirx.isnan(number)), number, made)

    return bind(value, of)


# The result gets the type of the output wherever constants are folded.
SPECS: tuple[OpSpec, ...] = (
    elementwise("cast", _cast, read={"astype": _read}, fold=lambda x: x),
    elementwise(
        ROUNDED["float16"],
        of_one(_to_float16),
        read={},
        fold=lambda x: x.astype(np.float16).astype(np.float32),
    ),
    elementwise(
        ROUNDED["bfloat16"],
        of_one(_to_bfloat16),
        read={},
        fold=lambda x: x.astype(ml_dtypes.bfloat16).astype(np.float32),
    ),
)
