"""Torch programs through the importer and the compiler's lowering, beside torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from host.lowering import lower
from tests.unit.importers.torch.test_operators import imported
from tests.unit.lowering import harness


def compare_lowered(
    function: Callable[..., Any], *inputs: torch.Tensor, rtol: float = 1e-4, atol: float = 1e-5
) -> None:
    """Fail unless the lowered program computes what torch does, NaN included."""
    model = lower(harness.imported(imported(function, *inputs)), harness.board())
    made = harness.run_lowered(model, [one.numpy() for one in inputs])
    wanted = function(*inputs)
    for found, one in zip(made, wanted if isinstance(wanted, tuple | list) else [wanted], strict=True):
        tensor = torch.from_numpy(found)
        torch.testing.assert_close(tensor, one.contiguous(), rtol=rtol, atol=atol, equal_nan=True)
