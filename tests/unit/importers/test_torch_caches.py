"""Steps of torch programs with explicit caches: rows written to places, beside torch."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from host.importers import from_module
from tests.unit.importers.harness import check
from tests.unit.lowering.harness import run

pytestmark = pytest.mark.usefixtures("own_files")
HEADS, PLACES, SIZE = 2, 24, 8

Write = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
WRITES: dict[str, Write] = {
    "index_copy": lambda cache, places, rows: cache.index_copy(2, places, rows),
    "index_put": lambda cache, places, rows: torch.ops.aten.index_put(cache, [None, None, places], rows),
    "last axis": lambda cache, places, rows: torch.ops.aten.index_put(
        cache.transpose(2, 3), [None, None, None, places], rows.transpose(2, 3)
    ),
}


class Step(nn.Module):
    """Attention of new rows over a cache of keys that is given and returned."""

    def __init__(self, write: Write) -> None:
        super().__init__()
        self.write, self.project = write, nn.Linear(SIZE, SIZE)

    def forward(
        self, rows: torch.Tensor, places: torch.Tensor, cache: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        cache = self.write(cache, places, self.project(rows))
        return torch.softmax(cache.sum(-1), -1), cache


def imported(module: nn.Module, *arguments: torch.Tensor) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own code
        return from_module(module.eval().requires_grad_(False), arguments, golden_cases=1)


@pytest.mark.parametrize(
    ("write", "count"), [("index_copy", 1), ("index_put", 3), ("index_put", 12), ("last axis", 1)]
)
def test_rows_of_a_cache_are_written_to_their_places(write: str, count: int) -> None:
    torch.manual_seed(0)
    step = Step(WRITES[write])
    rows, cache = torch.randn(1, HEADS, count, SIZE), torch.randn(1, HEADS, PLACES, SIZE)
    # The last place counts from the end, where the operator lets it.
    places = torch.arange(5, 5 + count)
    if write != "index_copy":
        places[-1] = -1
    model = check(imported(step, rows, torch.arange(count), cache))
    made = run(model.module, [one.numpy() for one in (rows, places, cache)])
    for found, wanted in zip(made, step(rows, places, cache), strict=True):
        torch.testing.assert_close(torch.from_numpy(found), wanted)


class Kept(nn.Module):
    """A step whose cache is a buffer."""

    def __init__(self, fresh: bool) -> None:
        super().__init__()
        self.fresh = fresh
        self.register_buffer("cache", torch.zeros(1, SIZE))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        added = rows if self.fresh else self.cache + rows
        self.cache.copy_(added)
        return 2 * added


def test_a_buffer_that_a_model_keeps_is_refused() -> None:
    rows = torch.randn(1, SIZE)
    model = imported(Kept(fresh=False), rows)
    assert model.module is None
    assert model.reason.startswith("buffer 'cache' is changed by the model") and "as an input" in model.reason
    assert "\n" not in model.reason
    # What is written before it is read is nobody's state.
    check(imported(Kept(fresh=True), rows))
