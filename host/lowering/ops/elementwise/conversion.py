"""Conversion of elements to another numeric type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx

from host.lowering.builder import Builder
from host.lowering.expressions.stage import Expression, dtype_of
from host.lowering.expressions.truth import nonzero
from host.lowering.graph import Value
from host.lowering.ops.forms import elementwise
from host.lowering.reader.call import OperatorCall
from host.lowering.spec import OpSpec


def _read(builder: Builder, call: OperatorCall) -> Value:
    return builder.cast(call.value(0), call.dtype)


def _cast(args: Sequence[Expression], attrs: Any, dtype: str) -> Expression:
    value = args[0]
    source = dtype_of(value)
    if source == dtype:
        return value
    if dtype == "bool":
        return nonzero(value)
    return tirx.Cast(dtype, value)


# The result gets the type of the output wherever constants are folded.
SPECS: tuple[OpSpec, ...] = (elementwise("cast", _cast, read={"astype": _read}, fold=lambda x: x),)
