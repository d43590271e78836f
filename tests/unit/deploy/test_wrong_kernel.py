"""What is said of a model whose outputs are wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from host.deploy.wrong_kernel import first_wrong_kernel
from host.model import GoldenCase


class Unstable:
    """Enlarges the least change of its inputs to another output."""

    def run(self, inputs: list[np.ndarray]) -> list[np.ndarray]:
        return [np.sin(inputs[0].astype(np.float64) * 1e8)]


def test_of_an_unstable_model_no_kernel_is_blamed(tmp_path: Path) -> None:
    values = np.linspace(1, 2, 50, dtype=np.float32)
    # Nothing is built and no other session is opened: they are not looked at.
    unused: Any = None
    said = first_wrong_kernel(
        unused, Unstable(), tmp_path / "bundle", unused, unused, GoldenCase((values,), (values,))
    )
    assert "the model itself is unstable" in said
    assert "kernel" not in said
