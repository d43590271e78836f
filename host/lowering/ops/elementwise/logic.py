"""Comparisons, selection, and logical and bitwise operations."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import tirx, topi

from host.lowering.expressions.stage import Expression, dtype_of
from host.lowering.ops.forms import elementwise, number, of_one
from host.lowering.spec import OpSpec

_COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
_LOGIC = {"logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": None}
_BITS = {
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": None,
    "left_shift": None,
    "right_shift": None,
}


def _where(args: Any, attrs: Any, dtype: str) -> Expression:
    condition = args[0]
    if dtype_of(condition) != "bool":
        condition = condition != number(0, dtype_of(condition))
    return tirx.Select(condition, args[1], args[2])


def _of_two(name: str) -> Any:
    function = getattr(topi, name)
    return lambda args, attrs, dtype: function(args[0], args[1])


SPECS: tuple[OpSpec, ...] = (
    *(elementwise(name, _of_two(name), fold=getattr(np, name), output_type="bool") for name in _COMPARISONS),
    *(elementwise(name, _of_two(name), fold=fold, output_type="bool") for name, fold in _LOGIC.items()),
    *(elementwise(name, _of_two(name), fold=fold) for name, fold in _BITS.items()),
    elementwise("logical_not", of_one(tirx.Not), fold=np.logical_not, output_type="bool"),
    elementwise("where", _where, fold=lambda test, yes, no: np.where(test.astype(bool), yes, no)),
)
