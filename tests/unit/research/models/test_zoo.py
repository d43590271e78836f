"""The models of the zoo: each can be built, and is exported under names that fit."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from research.models.zoo import ZOO


@pytest.mark.parametrize("name", ZOO)
def test_each_model_can_be_built(name: str) -> None:
    entry = ZOO[name]
    # Without memory for weights: large models are built as fast as small ones.
    with torch.device("meta"):
        module = entry.build()
    assert isinstance(module, nn.Module)
    assert sum(one.numel() for one in module.parameters()) > 100
    inputs = entry.inputs()
    assert len(inputs) == len(entry.input_names) and entry.output_names and entry.formats
