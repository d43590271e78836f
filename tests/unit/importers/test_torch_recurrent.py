"""GRU, LSTM and RNN of torch programs, beside torch."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import nn

from host.importers import from_module
from host.lowering import lower
from tests.unit.importers.harness import check
from tests.unit.lowering.harness import board, functions

pytestmark = pytest.mark.usefixtures("own_files")
FRAMES, WIDTH, HIDDEN = 5, 6, 7


class _Layers(nn.Module):
    """Recurrent layers that return their last states too."""

    def __init__(self, layers: nn.RNNBase) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, frames: torch.Tensor) -> tuple[torch.Tensor, ...]:
        sequence, states = self.layers(frames)
        return sequence, *(states if isinstance(states, tuple) else (states,))


def _imported(kind: type[nn.RNNBase], **options: Any) -> Any:
    torch.manual_seed(0)
    module = _Layers(kind(WIDTH, HIDDEN, **options)).eval().requires_grad_(False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own code
        return from_module(module, (torch.randn(2, FRAMES, WIDTH),), golden_cases=1)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_layers": 2, "bidirectional": True, "batch_first": True},
        {"bias": False, "batch_first": True},
    ],
    ids=["one", "two both ways", "without bias"],
)
@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM, nn.RNN])
def test_layers_are_loops_that_give_what_torch_gives(kind: type[nn.RNNBase], options: dict[str, Any]) -> None:
    model = check(_imported(kind, **options))
    loops = [name for name in functions(lower(model, board())) if "recurrent_loop" in name]
    assert loops


def test_rnn_with_relu() -> None:
    check(_imported(nn.RNN, nonlinearity="relu"))


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("given", [False, True])
def test_projections_of_hidden_states(both: bool, given: bool) -> None:
    layers = nn.LSTM(WIDTH, HIDDEN, 2, proj_size=3, bidirectional=both, batch_first=True)
    directions = 2 if both else 1
    torch.manual_seed(0)
    sizes = (2 * directions, 2, 3), (2 * directions, 2, HIDDEN)
    states = tuple(torch.randn(size) for size in sizes) if given else ()
    module = _Projected(layers).eval().requires_grad_(False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own code
        model = from_module(module, (torch.randn(2, FRAMES, WIDTH), *states), golden_cases=1)
    loops = [name for name in functions(lower(check(model), board())) if "recurrent_loop" in name]
    assert loops


class _Projected(nn.Module):
    """Layers whose first states are inputs, or zeros."""

    def __init__(self, layers: nn.LSTM) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, frames: torch.Tensor, *states: torch.Tensor) -> tuple[torch.Tensor, ...]:
        sequence, last = self.layers(frames, states or None)
        return sequence, *last
