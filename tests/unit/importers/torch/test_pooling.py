"""Pooling with as many windows as are asked for, beside torch."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
import tvm
from torch.nn import functional
from tvm import relax

from host.errors import ImportFailed
from host.importers.torch import pooling
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


def test_places_of_maxima_need_no_table_of_all_taps() -> None:
    image = drawn(1, 1, 60, 50)
    module = imported(lambda x: functional.max_pool2d(x, 13, 1, 6, return_indices=True), image)
    held: list[int] = []

    def note(one: object) -> None:
        if isinstance(one, tvm.ir.GenericConst) and isinstance(one.value, tvm.runtime.Tensor):
            held.append(math.prod(one.value.shape))

    relax.analysis.post_order_visit(module["main"], note)
    assert max(held) <= 60 * 13
    compare(lambda x: functional.max_pool2d(x, (13, 4), (1, 3), (6, 2), return_indices=True), image)


def test_places_of_maxima_without_a_batch() -> None:
    def pooled(x: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, ...]:
        image = functional.max_pool2d(x, 2, return_indices=True)
        volume = functional.max_pool3d(x[None], 2, return_indices=True)
        return *image, *volume, *functional.max_pool1d(row, 3, 2, return_indices=True)

    compare(pooled, drawn(4, 6, 7), drawn(3, 9))


def test_windows_of_too_many_elements_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        pooling, "LIMITS", SimpleNamespace(model=SimpleNamespace(computed_elements=6 * 5 * 9 - 1))
    )
    imported(lambda x: functional.max_pool2d(x, 3, 1, 1, return_indices=True), drawn(1, 1, 5, 5))
    with pytest.raises(ImportFailed, match="max_pool2d"):
        imported(lambda x: functional.max_pool2d(x, 3, 1, 1, return_indices=True), drawn(1, 1, 6, 5))
