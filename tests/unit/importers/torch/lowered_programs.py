"""Torch programs through the importer and the compiler's lowering, beside torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import torch

from host.lowering import lower
from tests.unit.importers.torch.test_operators import imported
from tests.unit.lowering import harness


def compare_lowered(
    function: Callable[..., Any], *inputs: torch.Tensor, rtol: float = 1e-4, atol: float = 1e-5
) -> None:
    """Fail unless the lowered program computes what torch does, NaN included."""
    model = lower(harness.imported(imported(function, *inputs)), harness.board())
    made = harness.run_lowered(model, [_array(one) for one in inputs])
    wanted = function(*inputs)
    pairs = zip(made, wanted if isinstance(wanted, tuple | list) else [wanted], strict=True)
    for place, (found, one) in enumerate(pairs):
        torch.testing.assert_close(
            _tensor(found),
            one.contiguous(),
            rtol=rtol,
            atol=atol,
            equal_nan=True,
            msg=lambda text, place=place: f"result {place}: {text}",
        )


def _array(tensor: torch.Tensor) -> np.ndarray:
    """torch has no arrays of bfloat16, whose type is not NumPy's own."""
    if tensor.dtype is not torch.bfloat16:
        return tensor.numpy()
    return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)


def _tensor(array: np.ndarray) -> torch.Tensor:
    if array.dtype != ml_dtypes.bfloat16:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
