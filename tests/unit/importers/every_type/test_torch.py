"""Elementwise functions of torch by types other than single precision, as programs of a type each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch.nn import functional

from tests.unit.importers.torch.lowered_programs import compare_lowered

Function = Callable[..., torch.Tensor]
_WHOLE = (torch.uint8, torch.int64)
_FLOATS = (torch.float16, torch.bfloat16)
_TYPES = (torch.bool, *_WHOLE, *_FLOATS)
_OF_ONE = (
    "abs acos acosh asin asinh atan atanh bitwise_not ceil cos cosh deg2rad erf erfc exp exp2 expm1 floor "
    "frac isfinite isinf isnan isneginf isposinf log log10 log1p log2 logical_not logit nan_to_num neg "
    "positive rad2deg reciprocal round rsqrt sgn sigmoid sign signbit sin sinc sinh sqrt square tan tanh "
    "trunc"
)
_ACTIVATIONS = (
    "celu elu gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish relu relu6 selu silu "
    "softplus softshrink softsign tanhshrink"
)
_OF_TWO = (
    "add atan2 bitwise_and bitwise_or bitwise_xor copysign div eq "
    "fmax fmin float_power ge gt heaviside hypot le ldexp logaddexp logical_and logical_or logical_xor lt "
    "maximum minimum mul ne pow rsub sub xlogy"
)
_DIVISIONS = ("floor_divide", "fmod", "remainder")
_WITH_NUMBERS: Mapping[str, Function] = {
    "x + 2": lambda x: x + 2,
    "x + 2.5": lambda x: x + 2.5,
    "x * 2.5": lambda x: x * 2.5,
    "x / 3": lambda x: x / 3,
    "x // 3": lambda x: x // 3,
    "x % 3": lambda x: x % 3,
    "x // 2.5": lambda x: x // 2.5,
    "x % 2.5": lambda x: x % 2.5,
    "x ** 0": lambda x: x**0,
    "x ** 2": lambda x: x**2,
    "x ** 5": lambda x: x**5,
    "x ** 29": lambda x: x**29,
    "x ** 0.5": lambda x: x**0.5,
    "2 ** x": lambda x: 2**x,
    "2.5 ** x": lambda x: 2.5**x,
    "3 - x": lambda x: 3 - x,
    "3.5 - x": lambda x: 3.5 - x,
    "x > 0.5": lambda x: x > 0.5,
    "x == 2.5": lambda x: x == 2.5,
    "x & 3": lambda x: x & 3,
    "x << 2": lambda x: x << 2,
    "x >> 1": lambda x: x >> 1,
    "clamp": lambda x: x.clamp(1, 5),
    "clamp by floats": lambda x: x.clamp(0.5, 2.5),
    "threshold": lambda x: functional.threshold(x, 1, 7),
}
_MIXED: Mapping[str, Function] = {
    "a b.float()": lambda a, b: a * b.to(torch.float32),
    "a + b.long()": lambda a, b: a + b.to(torch.int64),
    "a - b.char()": lambda a, b: a - b.to(torch.int8),
    "a / b.int()": lambda a, b: a / b.to(torch.int32),
    "a < b.long()": lambda a, b: a < b.to(torch.int64),
    "a ** b.float()": lambda a, b: a ** b.to(torch.float32),
    "a if a > b else b": lambda a, b: torch.where(a > b, a, b),
    "a between b and b + 3": lambda a, b: torch.clamp(a, b, b + 3),
    "a + 2 b": lambda a, b: torch.add(a, b, alpha=2),
}
# How far results may be off, for a number of 1.
_RELATIVE = {torch.float16: 4e-3, torch.bfloat16: 3e-2}
# What has no conversion of truth values.
_NOT_OF_TRUTH_VALUES = frozenset(
    (
        "isinf",
        "isnan",
        "signbit",
        "fmax",
        "fmin",
        "heaviside",
        "x & 3",
        "x << 2",
        "x >> 1",
        "a between b and b + 3",
    )
)
# Of infinities, PyTorch has NaN or a number by the type and the number of elements; none is a whole number.
_OF_FINITE_NUMBERS = frozenset(
    ("gelu", "ldexp", "x ** 0.5", "a + b.long()", "a - b.char()", "a / b.int()", "a < b.long()")
)


def _numbers(dtype: torch.dtype) -> torch.Tensor:
    if dtype is torch.bool:
        return torch.tensor([False, True])
    if dtype.is_floating_point:
        # NaN, which maxima keep where all of the build is used, is in `tests/memory_check/special_values.py`.
        special = [torch.inf, -torch.inf, 0, -0.0]
        return torch.tensor([*special, 1, -1, 0.5, -0.5, 2.5, -2.5, 3, -7, 0.3, 100, 1e-3]).to(dtype)
    ends = torch.iinfo(dtype)
    below = [-1, -2, -3, -7, ends.min, ends.min + 1] if ends.min else []
    return torch.tensor([0, 1, 2, 3, 5, 7, 100, ends.max, ends.max - 1, *below], dtype=dtype)


def _taken(functions: Mapping[str, Function], *inputs: torch.Tensor) -> dict[str, Function]:
    """The functions that torch has for these types."""
    found, dtype = {}, inputs[0].dtype
    left_out = _NOT_OF_TRUTH_VALUES if dtype is torch.bool else _OF_FINITE_NUMBERS if dtype in _FLOATS else ()
    for name, function in functions.items():
        if name in left_out:
            continue
        try:
            function(*inputs)
        except (RuntimeError, TypeError):
            continue
        found[name] = function
    return found


def _compare(functions: Mapping[str, Function], *inputs: torch.Tensor) -> None:
    def all_of_them(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(function(*given) for function in functions.values())

    relative = _RELATIVE.get(inputs[0].dtype, 1e-5)
    compare_lowered(all_of_them, *inputs, rtol=relative, atol=relative)


def _named(names: str, module: Any) -> dict[str, Function]:
    return {name: getattr(module, name) for name in names.split()}


@pytest.mark.parametrize("dtype", _TYPES, ids=str)
def test_functions_of_one_number(dtype: torch.dtype) -> None:
    numbers = _numbers(dtype)
    functions = _taken(
        {**_named(_OF_ONE, torch), **_named(_ACTIVATIONS, functional), **_WITH_NUMBERS}, numbers
    )
    assert len(functions) > 40
    _compare(functions, numbers)


@pytest.mark.parametrize("dtype", _TYPES, ids=str)
def test_functions_of_two_numbers(dtype: torch.dtype) -> None:
    left, right = (
        side.reshape(-1) for side in torch.meshgrid(_numbers(dtype), _numbers(dtype), indexing="ij")
    )
    functions = _taken({**_named(_OF_TWO, torch), **_MIXED}, left, right)
    assert len(functions) > 15
    _compare(functions, left, right)


@pytest.mark.parametrize("dtype", [*_WHOLE, *_FLOATS], ids=str)
def test_divisions(dtype: torch.dtype) -> None:
    """Not by zero: torch has no whole quotient then. Nor of the least number by -1, which has no place."""
    left, right = (
        side.reshape(-1) for side in torch.meshgrid(_numbers(dtype), _numbers(dtype), indexing="ij")
    )
    if not dtype.is_floating_point:
        kept = (right != 0) & ~((left == torch.iinfo(dtype).min) & (right == -1))
        left, right = left[kept], right[kept]
    functions = {
        **_named(" ".join(_DIVISIONS), torch),
        "rounded down": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    }
    # Of halves, a quotient may round to a whole number before it is cut off.
    if not dtype.is_floating_point:
        functions["cut off"] = lambda a, b: torch.div(a, b, rounding_mode="trunc")
    _compare(functions, left, right)


@pytest.mark.parametrize("dtype", _TYPES, ids=str)
def test_conversions(dtype: torch.dtype) -> None:
    """To each type, and there and back through one that holds less."""
    numbers = torch.tensor([0, 1, 2, 3, 100, 127, 1.75, 2.5]).to(dtype)
    _compare({str(one): (lambda x, one=one: x.to(one)) for one in _TYPES}, numbers)
    _compare({str(one): (lambda x, one=one: x.to(one).to(dtype)) for one in _TYPES}, numbers)
