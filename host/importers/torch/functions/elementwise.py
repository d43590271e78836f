"""Functions of each element of torch programs that neither relax nor the compiler has a name for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import Any

import numpy as np
from torch import fx
from tvm import relax


def _is_negative(builder: relax.BlockBuilder, data: Any) -> Any:
    """Whether a number has the sign of minus; of the zeros, -0 has it. NaN counts as positive."""
    emit, op, dtype = builder.emit, relax.op, str(data.ty.dtype)
    below = emit(op.less(data, relax.const(0, dtype)))
    if not dtype.startswith(("float", "bfloat")):
        return below
    # Only -0 has an infinitely small reciprocal.
    reciprocal = emit(op.divide(relax.const(1.0, dtype), data))
    return emit(op.logical_or(below, emit(op.equal(reciprocal, relax.const(-inf, dtype)))))


def _sign_bit(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    return None if str(given["self"].ty.dtype) == "bool" else _is_negative(builder, given["self"])


def _sign(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """1, 0 or -1; torch makes 0 of NaN. None of whole numbers, which TVM converts."""
    data, dtype = given["self"], str(given["self"].ty.dtype)
    if not dtype.startswith(("float", "bfloat")):
        return None
    emit, op = builder.emit, relax.op
    return emit(op.where(emit(op.isnan(data)), relax.const(0.0, dtype), emit(op.sign(data))))


def _with_sign(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """The size of one number with the sign of another one."""
    emit, op, (data, other) = builder.emit, relax.op, _operands(builder, node, given)
    size = emit(op.abs(data))
    return emit(op.where(_is_negative(builder, other), emit(op.negative(size)), size))


def _hypotenuse(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """sqrt(a^2 + b^2), by the larger one of both: its square may have no place in the type."""
    emit, op = builder.emit, relax.op
    a, b = (emit(op.abs(one)) for one in _operands(builder, node, given))
    larger, smaller = emit(op.maximum(a, b)), emit(op.minimum(a, b))
    zero, one, infinite = (relax.const(number, str(a.ty.dtype)) for number in (0.0, 1.0, inf))
    usable = emit(op.logical_and(emit(op.greater(larger, zero)), emit(op.less(larger, infinite))))
    share = emit(op.divide(smaller, emit(op.where(usable, larger, one))))
    root = emit(op.sqrt(emit(op.add(one, emit(op.multiply(share, share))))))
    infinity = emit(op.logical_or(emit(op.equal(a, infinite)), emit(op.equal(b, infinite))))
    return emit(op.where(infinity, infinite, emit(op.multiply(larger, root))))


def _angle(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """The angle of a point with coordinates that are halves; None of others, which TVM converts."""
    emit, made = builder.emit, str(node.meta["val"].dtype).removeprefix("torch.")
    if made not in ("float16", "bfloat16"):
        return None
    sides = [emit(relax.op.astype(given[one], "float32")) for one in ("self", "other")]
    return emit(relax.op.astype(emit(relax.op.atan2(*sides)), made))


def _extreme_number(extreme: Callable[[Any, Any], Any]) -> Any:
    """The larger or smaller one of two numbers, and the other one of NaN."""

    def convert(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
        emit, op, (a, b) = builder.emit, relax.op, _operands(builder, node, given)
        if not str(a.ty.dtype).startswith("float"):
            return emit(extreme(a, b))
        a, b = emit(op.where(emit(op.isnan(a)), b, a)), emit(op.where(emit(op.isnan(b)), a, b))
        return emit(extreme(a, b))

    return convert


def _clamped(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """Whole numbers between bounds that are floats, and bounds in the wrong order: the upper one counts.

    None for others, which TVM converts.
    """
    made, (low, high) = str(node.meta["val"].dtype).removeprefix("torch."), (given["min"], given["max"])
    known = [one for one in (low, high) if isinstance(one, int | float)]
    crossed = len(known) == 2 and known[0] > known[1]
    if len(known) != sum(one is not None for one in (low, high)):
        return None
    if not crossed and str(given["self"].ty.dtype) == made:
        return None
    data = builder.emit(relax.op.astype(given["self"], made))
    for bound, extreme in ((low, relax.op.maximum), (high, relax.op.minimum)):
        if bound is not None:
            data = builder.emit(extreme(data, relax.const(bound, made)))
    return data


def _whole_power(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """A power of whole numbers; None of others, which TVM converts, and which it takes for floats."""
    made = str(node.meta["val"].dtype).removeprefix("torch.")
    if made.startswith(("float", "bfloat", "complex")):
        return None
    numbers = [one for one in (given["self"], given["exponent"]) if isinstance(one, int)]
    ends = np.iinfo(made)
    # PyTorch keeps a number of the program that the type does not hold.
    wide = made if all(ends.min <= one <= ends.max for one in numbers) else "int64"
    sides = [
        relax.const(np.array(one, wide), wide)
        if isinstance(one, int)
        else builder.emit(relax.op.astype(one, wide))
        for one in (given["self"], given["exponent"])
    ]
    return builder.emit(relax.op.astype(builder.emit(relax.op.power(*sides)), made))


def _operands(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> tuple[Any, Any]:
    """Both operands in the type of the result; the second one may be a number."""
    dtype = str(node.meta["val"].dtype).removeprefix("torch.")
    data = builder.emit(relax.op.astype(given["self"], dtype))
    other = given["other"]
    if isinstance(other, int | float):
        return data, relax.const(float(other), dtype)
    return data, builder.emit(relax.op.astype(other, dtype))


CONVERTERS: Mapping[str, Any] = {
    **dict.fromkeys(("copysign.Scalar", "copysign.Tensor"), _with_sign),
    "atan2.default": _angle,
    "clamp.default": _clamped,
    "fmax.default": _extreme_number(relax.op.maximum),
    "fmin.default": _extreme_number(relax.op.minimum),
    "hypot.default": _hypotenuse,
    **dict.fromkeys(("pow.Scalar", "pow.Tensor_Scalar", "pow.Tensor_Tensor"), _whole_power),
    "sign.default": _sign,
    "signbit.default": _sign_bit,
}
