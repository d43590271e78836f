"""Comparisons, selection, and logical and bitwise operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import tirx, topi

from host.lowering.expressions.stage import Expression, dtype_of
from host.lowering.expressions.truth import compared, nonzero
from host.lowering.ops.forms import ElementExpression, elementwise, of_one
from host.lowering.spec import OpSpec
from host.lowering.types import numeric_type

_COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
_LOGIC = {"logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": None}
_BITS = {
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": None,
}


def _where(args: Any, attrs: Any, dtype: str) -> Expression:
    condition = args[0]
    if dtype_of(condition) != "bool":
        condition = nonzero(condition)
    return tirx.Select(condition, args[1], args[2])


def _of_two(name: str) -> Any:
    function = getattr(topi, name)
    return lambda args, attrs, dtype: function(args[0], args[1])


def _comparison(name: str) -> ElementExpression:
    return lambda args, attrs, dtype: compared(name, args[0], args[1])


def _shift(name: str) -> ElementExpression:
    """Nothing is left of a number that is shifted by its width or more, of which LLVM makes anything."""
    function = getattr(topi, name)

    def expression(args: Sequence[Expression], attrs: Any, dtype: str) -> Expression:
        value, count = args
        bits = numeric_type(dtype).bytes * 8
        shifted = function(value, topi.bitwise_and(count, tirx.const(bits - 1, dtype)))
        # A negative count is more than the width too, as a number without sign.
        fits = compared("equal", count, topi.bitwise_and(count, tirx.const(bits - 1, dtype)))
        return tirx.Select(fits, shifted, tirx.const(0, dtype))

    return expression


SPECS: tuple[OpSpec, ...] = (
    *(
        elementwise(name, _comparison(name), fold=getattr(np, name), output_type="bool")
        for name in _COMPARISONS
    ),
    *(elementwise(name, _of_two(name), fold=fold, output_type="bool") for name, fold in _LOGIC.items()),
    *(elementwise(name, _of_two(name), fold=fold) for name, fold in _BITS.items()),
    *(elementwise(name, _shift(name)) for name in ("left_shift", "right_shift")),
    elementwise("logical_not", of_one(tirx.Not), fold=np.logical_not, output_type="bool"),
    elementwise("where", _where, fold=lambda test, yes, no: np.where(test.astype(bool), yes, no)),
)
