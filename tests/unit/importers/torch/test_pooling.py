"""Pooling with as many windows as are asked for, beside torch."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from tests.unit.importers.torch.test_operators import compare, drawn, imported

ADAPTIVE = {
    "equal windows": ((9, 8), (3, 4)),
    "rows alone": ((9, 8), (2, 1)),
    "windows of two lengths": ((11, 15), (4, 7)),
    "equal and others": ((12, 10), (3, 4)),
    "more than there are": ((5, 6), (7, 9)),
    "as many as there are": ((5, 6), (5, 6)),
}


@pytest.mark.parametrize("name", ADAPTIVE)
def test_means_of_as_many_windows_as_are_asked_for(name: str) -> None:
    size, made = ADAPTIVE[name]
    image = drawn(2, 3, *size)
    compare(lambda x: functional.adaptive_avg_pool2d(x, made), image)
    compare(
        lambda x: functional.adaptive_avg_pool3d(x, (2, *made)), torch.stack([image, 2 * image, image], 2)
    )
    compare(lambda x: functional.adaptive_avg_pool1d(x, made[0]), image[:, :, :, 0])
    assert "nn.adaptive" not in str(imported(lambda x: functional.adaptive_avg_pool2d(x, made), image))


def test_the_largest_of_equal_windows_are_pooled() -> None:
    text = str(imported(lambda x: functional.adaptive_max_pool2d(x, (3, 4)), drawn(2, 3, 9, 8)))
    assert "max_pool2d" in text and "strided_slice" not in text


def test_a_mean_of_infinite_elements_is_infinite() -> None:
    image = torch.full((1, 1, 11, 15), torch.inf)
    compare(lambda x: functional.adaptive_avg_pool2d(x, (4, 7)), image)
