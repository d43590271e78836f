"""Quotients at whole numbers, complements of small results, and NaN, as torch has them."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch.nn import functional

from tests.unit.importers.torch.lowered_programs import compare_lowered
from tests.unit.importers.torch.test_operators import drawn, whole

NAN, INFINITY = math.nan, math.inf


def test_quotients_at_whole_numbers_are_rounded_down_by_the_exact_remainder() -> None:
    def divided(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        modes = tuple(torch.div(a, b, rounding_mode=mode) for mode in ("floor", "trunc"))
        ofs = a // 0.1, torch.floor_divide(a, -0.3), a // 0.0, a % 0.1, torch.remainder(1.0, b)
        return *modes, *ofs, a // b, a % b, torch.fmod(a, b)

    left = torch.tensor([1, 1, -1, 1, 3, -3, 0.3, NAN, INFINITY, 5, 0, 1e30, 7, -INFINITY, 0.05, -0.05])
    right = torch.tensor([0.1, -0.1, 0.1, 0, 0.3, 0.3, 0.1, 1, 1, INFINITY, 1, 0.1, -0.7, 2, -0.1, -0.1])
    compare_lowered(divided, left, right, rtol=0, atol=0)
    tenths, steps = torch.arange(1, 200) * 0.1, torch.tensor([0.1, 0.2, 0.3, -0.7, 1.1])
    compare_lowered(divided, tenths.repeat(5), steps.repeat_interleave(199), rtol=0, atol=0)
    ofs = lambda a, b: (torch.div(a, b, rounding_mode="floor"), a % b, torch.fmod(a, b).square())  # noqa: E731
    compare_lowered(ofs, tenths.half(), steps[1:2].half(), rtol=1e-3, atol=0)


def test_whole_numbers_are_divided_in_the_type_of_the_result() -> None:
    def divided(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        small = torch.div(a.to(torch.int8) * 14, b.to(torch.int8) - 5, rounding_mode="trunc")
        return a // b, a // 2.5, a % b, a % 2.5, torch.remainder(7, b), 7 // b, 7.5 // b, small

    compare_lowered(divided, whole(19, 6, 5) - 9, whole(9, 6, 5) % 4 + 1)


def test_functions_keep_the_digits_of_small_results() -> None:
    compare_lowered(lambda x: (x.erfc(), (-x).erfc()), torch.linspace(-1, 9.1, 500), rtol=1e-6, atol=0)
    compare_lowered(lambda x: (x.expm1(), x.log1p()), torch.logspace(-20, 0.5, 300), rtol=1e-6, atol=0)
    compare_lowered(lambda x: (x.erfc(), x.expm1()), torch.tensor([NAN, INFINITY, -INFINITY]))
    compare_lowered(lambda x: functional.celu(x, 0.7), drawn(4, 5))
    double = torch.linspace(-1, 20, 50, dtype=torch.float64)
    compare_lowered(lambda x: (x.erfc(), x.expm1(), (x + 1).log1p()), double, rtol=1e-12, atol=0)


def test_the_sign_of_nan_is_zero() -> None:
    numbers = torch.tensor([NAN, INFINITY, -INFINITY, 0, -0.0, 2, -2])
    compare_lowered(lambda x: (x.sign(), x.half().sign(), x.nan_to_num(3).int().sign()), numbers)


def test_each_of_no_elements_is_not_zero() -> None:
    def asked(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.all(0), x.any(0), x.all(), x.any(), x.all(1), x.any(1, keepdim=True)

    compare_lowered(asked, torch.zeros(0, 3))


def test_the_place_of_the_last_nan_is_that_of_the_maximum() -> None:
    x = torch.where(drawn(2, 3, 9, 8) > 0.8, NAN, drawn(2, 3, 9, 8))
    compare_lowered(lambda x: functional.max_pool2d(x, 2, return_indices=True), x)
    compare_lowered(lambda x: functional.max_pool2d(x, 3, 2, 1, 2, return_indices=True), x)


def test_places_of_maxima_are_never_in_the_padding() -> None:
    def pooled(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        places = functional.max_pool2d(x, 2, 2, 1, (2, 1), return_indices=True)
        return *places, *functional.max_pool2d(x, 3, 1, 1, return_indices=True)

    compare_lowered(pooled, torch.full((1, 2, 6, 6), -INFINITY))


def test_extremes_and_medians_with_nan() -> None:
    def ordered(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        extremes = *torch.cummax(x, 1), *torch.cummin(x, 0)
        medians = *torch.median(x, 1), torch.median(x), torch.nanmedian(x, 1, True)[0]
        sums = torch.logcumsumexp(x, 1)
        return *extremes, *medians, sums, torch.kthvalue(x, 3, 1)[0], torch.mode(x, 1)[0]

    rows = [[1, NAN, 3, 2, NAN], [4, 1, 1, 7, 2], [NAN] * 5, [INFINITY, -INFINITY, NAN, 0, 0]]
    compare_lowered(ordered, torch.tensor(rows))


def test_nan_is_ordered_in_bfloat16_too() -> None:
    def ordered(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        short = x.bfloat16()
        values, places = torch.cummax(short, 1)
        others = torch.median(short, 1)[0], torch.nanmedian(short, 1)[0], torch.mode(short, 1)[0]
        return values.float(), places, *(one.float() for one in others)

    rows = [[1, NAN, 3, 2, NAN], [4, 1, 1, 7, 2], [NAN] * 5, [INFINITY, -INFINITY, NAN, 0, 0]]
    compare_lowered(ordered, torch.tensor(rows))


def test_exponentials_of_complex_numbers_are_those_of_torch() -> None:
    def exponential(x: torch.Tensor) -> torch.Tensor:
        return torch.view_as_real(torch.view_as_complex(x).exp())

    numbers = [0.0, 0.5, 3.0, 800.0, -800.0, 89.0, INFINITY, -INFINITY, NAN]
    compare_lowered(exponential, torch.tensor(list(itertools.product(numbers, numbers))))


def test_quotients_of_infinite_complex_numbers_are_those_of_torch() -> None:
    def divided(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a, b = torch.view_as_complex(x), torch.view_as_complex(y)
        made = a / b, x[:, 0] / b, a / complex(0.5, -INFINITY)
        return tuple(torch.view_as_real(one) for one in made)

    pairs = list(itertools.product([0.0, 1.5, -2.0, INFINITY, -INFINITY, NAN], repeat=2))
    left, right = (torch.tensor(one) for one in zip(*itertools.product(pairs, pairs), strict=True))
    compare_lowered(divided, left, right, rtol=1e-6, atol=0)


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_a_conversion_to_halves_and_back_rounds(half: torch.dtype) -> None:
    def rounded(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        short = x.to(half)
        moved = torch.cat([short.reshape(-1, 2).T, short.reshape(2, -1) * 2])
        others = short > x.flip(0).to(half), (x * 999).to(half).int(), x.double().to(half).double()
        return short.float(), short.float() * 2, moved[:2].float(), *others, (x * 99).to(half).floor() * 2

    special = torch.tensor([1e6, 1e-6, 3.3961776292304957e38, NAN, INFINITY, -INFINITY])
    compare_lowered(rounded, torch.cat([drawn(40, 9).reshape(-1), special]).nan_to_num(7), rtol=0, atol=0)
    compare_lowered(lambda x: (x.to(half).float(), x.to(half).float() * 2), special, rtol=0, atol=0)


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_whole_numbers_and_other_halves_round_to_a_half(half: torch.dtype) -> None:
    def rounded(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        other = torch.float16 if half is torch.bfloat16 else torch.bfloat16
        return x.to(half).long(), x.to(half).float(), y.to(half).to(other).float(), x.int().to(half) == x

    compare_lowered(rounded, whole(6000, 300) - 3000, drawn(300) * 100, rtol=0, atol=0)


def test_a_number_that_is_read_in_two_shapes_is_compared_with_itself() -> None:
    def compared(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        spread = x.expand(4, 5)
        differences = spread - x.expand(4, 5), x - spread
        return *differences, spread == x.expand(4, 5), x != spread, spread >= x

    compare_lowered(compared, torch.tensor([[INFINITY], [1], [NAN], [2]]))
