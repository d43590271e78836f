"""Mathematical functions of one number."""

from __future__ import annotations

import math as scalar
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tvm import tirx

from host.lowering.expressions import math
from host.lowering.expressions.stage import Expression
from host.lowering.ops.forms import elementwise, number, of_one, single_or
from host.lowering.spec import OpSpec

# TensorIR's own functions, with what they are in numpy where they are folded.
_INTRINSICS: dict[str, Callable[..., Any] | None] = {
    "abs": np.abs,
    "acos": None,
    "acosh": None,
    "asin": None,
    "asinh": None,
    "atan": None,
    "atanh": None,
    "bitwise_not": None,
    "ceil": np.ceil,
    "cos": np.cos,
    "cosh": None,
    "floor": np.floor,
    "round": np.round,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "sin": np.sin,
    "sinh": None,
    "sqrt": np.sqrt,
    "tan": None,
    "trunc": None,
}
_LEAST_NORMAL, _SCALE = 2.0**-126, 2.0**23
_PREDICATES = {"isfinite": np.isfinite, "isinf": np.isinf, "isnan": np.isnan}
# Functions that relax does not have, and C's library has under the same name.
_WITHOUT_RELAX: dict[str, tuple[Callable[[Expression], Expression], Callable[..., Any]]] = {
    "erfc": (math.erfc, np.vectorize(scalar.erfc, otypes=[np.float64])),
    "expm1": (math.expm1, np.expm1),
    "log1p": (math.log1p, np.log1p),
}


def _function_of_ours(
    name: str, single: Callable[[Expression], Expression], fold: Callable[..., Any]
) -> OpSpec:
    """A function that importers call by a name of ours."""
    return elementwise(
        name,
        single_or(single, of_one(lambda x: tirx.call_pure_extern("float64", name, x))),
        read={f"edgetlm.{name}": lambda builder, call: builder.unary(name, call.value(0))},
        fold=fold,
    )


def _negative(args: Sequence[Expression], attrs: Mapping[str, Any], dtype: str) -> Expression:
    """Of a type without negative numbers, what is left of 0: as in C, it begins again at its end."""
    return number(0, dtype) - args[0] if dtype.startswith("uint") else -args[0]


def _sign(value: Expression, dtype: str) -> Expression:
    """NaN is its own sign, and so are the zeros."""
    if dtype == "bool":
        return value
    zero, one = number(0, dtype), number(1, dtype)
    if dtype.startswith("uint"):
        return tirx.Select(value > zero, one, zero)
    minus = number(-1, dtype)
    return math.bind(value, lambda v: tirx.Select(v > zero, one, tirx.Select(v < zero, minus, v)))


def _log(value: Expression) -> Expression:
    """The logarithm of any number: one below the normal ones is multiplied first."""
    zero, least = number(0, "float32"), number(_LEAST_NORMAL, "float32")

    def of(v: Expression) -> Expression:
        scaled = tirx.Select(v < least, v * number(_SCALE, "float32"), v)
        offset = tirx.Select(v < least, number(-scalar.log(_SCALE), "float32"), zero)
        return math.log(scaled) + offset

    return math.bind(value, of)


SPECS: tuple[OpSpec, ...] = (
    *(elementwise(name, of_one(getattr(tirx, name)), fold=fold) for name, fold in _INTRINSICS.items()),
    *(elementwise(name, of_one(getattr(tirx, name)), fold=fold) for name, fold in _PREDICATES.items()),
    elementwise(
        "erf",
        single_or(math.erf, of_one(tirx.erf)),
        fold=np.vectorize(scalar.erf, otypes=[np.float64]),
    ),
    *(_function_of_ours(name, single, fold) for name, (single, fold) in _WITHOUT_RELAX.items()),
    elementwise("exp", single_or(math.exp, of_one(tirx.exp)), fold=np.exp),
    elementwise("log", single_or(_log, of_one(tirx.log)), fold=np.log),
    elementwise("tanh", single_or(math.tanh, of_one(tirx.tanh)), fold=np.tanh),
    elementwise("negative", _negative, fold=np.negative),
    elementwise("sign", lambda args, attrs, dtype: _sign(args[0], dtype), fold=np.sign),
    elementwise("square", of_one(lambda x: math.bind(x, lambda v: v * v)), fold=np.square),
)
