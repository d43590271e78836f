"""Operators that torch has no decomposition for, beside torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.unit.importers.torch.lowered_programs import compare_lowered
from tests.unit.importers.torch.test_operators import drawn, whole


def _diagonals(x: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, ...]:
    cleared = x[0].clone()
    cleared.diagonal().fill_(-1.0)
    return cleared, x.diagonal_scatter(row[:, :3], 1, 2, 1), x[0].diagonal_scatter(row[0, :3], -1)


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "bilinear": (
        lambda x, y, w, b: (functional.bilinear(x, y, w, b), functional.bilinear(x[0], y[0], w)),
        (drawn(3, 2, 4), drawn(3, 2, 5), drawn(6, 4, 5), drawn(6)),
    ),
    "matrix by vector": (
        lambda x, a, v: (torch.addmv(x, a, v), torch.addmv(x / 0, a, v, beta=0, alpha=0.5), a.mv(v)),
        (drawn(3), drawn(3, 4), drawn(4)),
    ),
    "products": (
        lambda x, a, b: (torch.addbmm(x, a, b, beta=0.5), torch.baddbmm(x, a, b, alpha=2)),
        (drawn(3, 5), drawn(2, 3, 4), drawn(2, 4, 5)),
    ),
    "distances": (lambda x, y: (torch.dist(x, y), torch.dist(x, y, 1)), (drawn(3, 4), drawn(4))),
    "powers of two": (lambda x, n: (torch.ldexp(x, n), torch.ldexp(x, -n)), (drawn(3, 4), whole(9, 3, 4))),
    "diagonals": (_diagonals, (drawn(2, 4, 4), drawn(2, 4))),
    "put": (
        lambda x, at, v: (x.put(at, v), x.put(at % 2, v, accumulate=True)),
        (drawn(3, 5), torch.tensor([[1, 3], [5, -1]]), drawn(2, 2)),
    ),
    "slopes": (lambda x: nn.RReLU().eval()(x), (drawn(3, 4),)),
    "steps": (lambda x, w, b: torch.conv_tbc(x, w, b, 1), (drawn(7, 2, 3), drawn(3, 3, 4), drawn(4))),
    "frames": (
        lambda x: (x.as_strided((5, 8), (4, 1)), x.as_strided((2, 3), (7, 2), 3)),
        (drawn(2, 20),),
    ),
    "parts of values": (
        lambda x, at, v: (x.scatter(1, at, v), x.scatter_add(1, at, v), x.scatter_reduce(1, at, v, "amax")),
        (drawn(3, 5), torch.tensor([[0, 3], [4, 1]]), drawn(3, 4)),
    ),
    "pools without a batch": (
        lambda x: (functional.avg_pool1d(x, 2), functional.adaptive_avg_pool1d(x, 3) * 2),
        (drawn(3, 8),),
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_operators_without_a_decomposition_of_torch(name: str) -> None:
    function, inputs = FUNCTIONS[name]
    compare_lowered(function, *inputs)


def test_the_middle_of_all_numbers_that_there_are() -> None:
    compare_lowered(torch.nanmedian, torch.tensor([[1.0, math.nan, 5.0], [2.0, math.nan, 9.0]]))


def test_exponentials_and_powers_of_complex_numbers() -> None:
    def computed(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a = torch.complex(x, y)
        chosen = torch.where(x > 0, a, 2.0), torch.where(y > 0, x.to(torch.complex64), a)
        made = a.exp(), 1 / a, a.reciprocal(), a**2, a**5, *chosen
        # The kernel of a state space model.
        kernel = torch.exp(a[:, None] * torch.arange(6)).sum(0)
        return *(torch.view_as_real(one) for one in made), torch.view_as_real(kernel)

    compare_lowered(computed, 0.3 * drawn(5) - 0.5, drawn(5))
