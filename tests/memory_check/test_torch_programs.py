"""Programs of torch with indices far outside of their axes, and whole numbers that are divided by zero."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from host.importers.torch.importer import export_module
from tests.memory_check.compiled import outputs_in_a_child
from tests.memory_check.test_indices import FAR, LEAST, MOST

SIZES = 6, 5
ONES = torch.ones(*SIZES)


class _Calls(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


def _made(
    path: Path, function: Callable[..., Any], usual: list[torch.Tensor], given: list[torch.Tensor]
) -> np.ndarray:
    """The output for some inputs of a program that is exported with others."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own code
        export_module(_Calls(function), usual, path)
        wanted = function(*usual).numpy()
    samples = [one.numpy() for one in usual]
    return outputs_in_a_child(path, [one.numpy() for one in given], samples, [wanted])[0]


# A function of indices (3), and of a second such.
INDEXED: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "index_put": lambda a, b: ONES.index_put((a, b), torch.ones(3)),
    "index_put, added": lambda a, b: ONES.index_put((a, b), torch.zeros(3), True),
    "index_put of rows": lambda a, b: ONES.index_put((a,), torch.ones(3, 5)),
    "index_copy of many rows": lambda a, b: ONES.repeat(1, 3).index_copy(
        0, torch.cat([a, b, a, b]), torch.ones(12, 15)
    ),
    "index_copy of columns": lambda a, b: ONES.index_copy(1, a, torch.ones(6, 3)),
    "index_add": lambda a, b: ONES.index_add(0, a, torch.zeros(3, 5)),
    "index_fill": lambda a, b: ONES.index_fill(0, a, 1.0),
    "scatter": lambda a, b: ONES.scatter(0, a[None], torch.ones(1, 3)),
    "scatter of a number": lambda a, b: ONES.scatter(1, a[None], 1.0),
    "scatter_add": lambda a, b: ONES.scatter_add(1, torch.stack([a, b]), torch.zeros(2, 3)),
    "scatter_reduce": lambda a, b: ONES.scatter_reduce(0, a[:, None], torch.ones(3, 1), "amax"),
    "gather": lambda a, b: ONES.gather(1, torch.stack([a, b])),
    "index": lambda a, b: ONES[a, b],
    "index_select": lambda a, b: ONES.index_select(1, a),
    "embedding": lambda a, b: nn.functional.embedding(a, ONES),
    "take": lambda a, b: torch.take(ONES, a),
    "select": lambda a, b: ONES[a[0]],
    "bags": lambda a, b: nn.functional.embedding_bag(b, ONES, a.sort()[0], mode="sum").clamp(1, 1),
    "repeat_interleave": lambda a, b: ONES[:3].repeat_interleave(a, 0, output_size=3),
    "put": lambda a, b: ONES.put(a, torch.ones(3)),
}


@pytest.mark.parametrize("name", INDEXED)
def test_indices_out_of_range_touch_no_other_memory(name: str, tmp_path: Path) -> None:
    far = torch.from_numpy(np.random.default_rng(0).choice(np.array([*FAR, -1]), (2, 3)))
    usual = [torch.tensor([1, 2, 0]), torch.tensor([2, 0, 4])]
    made = _made(tmp_path / "program.pt2", INDEXED[name], usual, list(far))
    assert (made == 1).all()


@pytest.mark.parametrize(
    "divide",
    [
        lambda a, b: torch.div(a, b, rounding_mode="floor"),
        lambda a, b: torch.div(a, b, rounding_mode="trunc"),
        torch.remainder,
        torch.fmod,
    ],
    ids=["floor", "trunc", "remainder", "fmod"],
)
def test_whole_numbers_by_zero_are_zero(divide: Callable[..., torch.Tensor], tmp_path: Path) -> None:
    a = torch.tensor([LEAST, LEAST, MOST, 7, -7, 0])
    b = torch.tensor([-1, 0, 0, 0, 0, 0])
    usual = [torch.ones(6, dtype=torch.int64)] * 2
    made = _made(tmp_path / "program.pt2", divide, usual, [a, b])
    np.testing.assert_array_equal(made[1:], 0)
