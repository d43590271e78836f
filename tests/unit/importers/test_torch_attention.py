"""`scaled_dot_product_attention` of exported torch programs is one function."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from host.importers.torch.convert import convert_program
from host.lowering import lower
from tests.unit.lowering.harness import board, functions, imported, run_lowered

LENGTH = 70


class _Attention(torch.nn.Module):
    def __init__(self, mask: torch.Tensor | None, causal: bool = False) -> None:
        super().__init__()
        self.register_buffer("mask", mask)
        self.causal = causal

    def forward(self, x: torch.Tensor, *masks: torch.Tensor) -> torch.Tensor:
        heads = x.view(1, LENGTH, 2, 16).transpose(1, 2)
        mask = masks[0] if masks else self.mask
        attend = torch.nn.functional.scaled_dot_product_attention
        return attend(heads, heads, heads, attn_mask=mask, is_causal=self.causal)


def _kept(*empty: int) -> torch.Tensor:
    kept = torch.from_numpy(np.random.default_rng(3).random((LENGTH, LENGTH)) < 0.5)
    kept[list(empty)] = False
    return kept


def _as_numbers(kept: torch.Tensor) -> torch.Tensor:
    return torch.zeros(LENGTH, LENGTH).masked_fill(~kept, -torch.inf)


CASES = {
    "no mask": (_Attention(None), ()),
    "causal": (_Attention(None, causal=True), ()),
    "constant": (_Attention(_kept()), ()),
    "constant with an empty row": (_Attention(_kept(4)), ()),
    "truth values": (_Attention(None), (_kept(4, 9),)),
    "numbers": (_Attention(None), (_as_numbers(_kept(4, 9)),)),
}


@pytest.mark.parametrize("case", CASES)
def test_attention_of_an_exported_program_is_one_function(case: str) -> None:
    module, masks = CASES[case]
    x = torch.from_numpy(np.random.default_rng(1).normal(size=(1, LENGTH, 32)).astype("float32"))
    model = lower(imported(convert_program(torch.export.export(module, (x, *masks)))), board())
    names = functions(model)
    assert "fused_attention" in names
    assert not any("softmax" in name or "matmul" in name for name in names)
    (found,) = run_lowered(model, [x.numpy(), *(mask.numpy() for mask in masks)])
    np.testing.assert_allclose(found, module(x, *masks).numpy(), rtol=1e-4, atol=1e-5)
