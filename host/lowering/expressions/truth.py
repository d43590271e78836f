"""Comparisons of a model as IEEE 754 has them, which TVM does not see through (`host.tensor_ir.opaque`)."""

from __future__ import annotations

from tvm import tirx, topi
from tvm.ir.prim import expr_deep_equal

from host.lowering.expressions.stage import Expression, dtype_of
from host.lowering.types import numeric_type
from host.tensor_ir.opaque import opaque

# Comparisons that hold for equal operands.
_REFLEXIVE = ("equal", "less_equal", "greater_equal")


def compared(name: str, left: Expression, right: Expression) -> Expression:
    """A comparison by its name in numpy: "less", "not_equal" and the like.

    The code generator's own inequality is false where an operand is NaN.
    """
    dtype = dtype_of(left)
    if dtype == "bool":
        # The code generator compares truth values as floats, which LLVM refuses.
        left, right = tirx.Cast("int8", left), tirx.Cast("int8", right)
    elif numeric_type(dtype).is_float and is_same(left, right):
        return _with_itself(name, left)
    if name == "not_equal":
        return tirx.Not(opaque(topi.equal(left, right)))
    return opaque(getattr(topi, name)(left, right))


def is_same(left: Expression, right: Expression) -> bool:
    """Whether two operands are one number, which may be read in two shapes: TVM compares what is written."""
    return bool(left.same_as(right) or expr_deep_equal(left, right))


def _with_itself(name: str, value: Expression) -> Expression:
    """A comparison of equal operands, of which TVM takes none for NaN."""
    if name in _REFLEXIVE:
        return tirx.Not(opaque(tirx.isnan(value)))
    return opaque(tirx.isnan(value)) if name == "not_equal" else tirx.const(False, "bool")


def nonzero(value: Expression) -> Expression:
    """Whether a number is another than zero, as NaN is."""
    return compared("not_equal", value, tirx.const(0, dtype_of(value)))
