"""Updates of low rank (LoRA, arXiv 2106.09685).

A layer's weights stay, and the product of two thin matrices beside them is trained. Merged into the weights,
the network is an ordinary one again.
"""

from __future__ import annotations

import torch
from transformers import GPT2LMHeadModel
from transformers.pytorch_utils import Conv1D

_SCALE = 2.0


class LowRank(torch.nn.Module):  # type: ignore[misc]
    """A layer y = x W + b (`Conv1D`) with an update of low rank: W + scale * A B.

    Args:
        layer: W of (inputs, outputs).
        rank: columns of A and rows of B.
        generator: of A's random values; B starts as zero, so that nothing changes at first.
    """

    def __init__(self, layer: Conv1D, rank: int, generator: torch.Generator) -> None:
        super().__init__()
        inputs, outputs = layer.weight.shape
        self.layer = layer
        start = torch.randn(inputs, rank, generator=generator) / inputs**0.5
        self.down = torch.nn.Parameter(start.to(layer.weight.device))
        self.up = torch.nn.Parameter(torch.zeros(rank, outputs, device=layer.weight.device))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """(..., inputs) -> (..., outputs)."""
        found: torch.Tensor = self.layer(values) + _SCALE * (values @ self.down) @ self.up
        return found

    def merged(self) -> Conv1D:
        """The layer with the update in its weights."""
        with torch.no_grad():
            self.layer.weight += _SCALE * self.down @ self.up
        return self.layer


def add_updates(model: GPT2LMHeadModel, rank: int, seed: int) -> list[torch.nn.Parameter]:
    """Puts updates beside all layers of the blocks; returns what is to be trained, all else is frozen."""
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    added: list[torch.nn.Parameter] = []
    for parent, name, layer in _layers(model, Conv1D):
        update = LowRank(layer, rank, generator)
        setattr(parent, name, update)
        added += [update.down, update.up]
    return added


def merge_updates(model: GPT2LMHeadModel) -> None:
    """Takes the updates into the weights."""
    for parent, name, update in _layers(model, LowRank):
        setattr(parent, name, update.merged())
    for parameter in model.parameters():
        parameter.requires_grad_(True)


def _layers(model: GPT2LMHeadModel, kind: type) -> list[tuple[torch.nn.Module, str, torch.nn.Module]]:
    """Layers of a kind with the module that holds each and its name there."""
    return [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if isinstance(child, kind)
    ]
