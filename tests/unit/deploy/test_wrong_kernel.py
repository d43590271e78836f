"""What is said of a model whose outputs are wrong."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from host.deploy import wrong_kernel
from host.deploy.wrong_kernel import first_wrong_kernel
from host.model import GoldenCase
from host.transport import KernelOutputs


class Unstable:
    """Enlarges the least change of its inputs to another output."""

    def run(self, inputs: list[np.ndarray]) -> list[np.ndarray]:
        return [np.sin(inputs[0].astype(np.float64) * 1e8)]


def test_of_an_unstable_model_no_kernel_is_blamed(tmp_path: Path) -> None:
    values = np.linspace(1, 2, 50, dtype=np.float32)
    # Nothing is built and no other session is opened: they are not looked at.
    unused: Any = None
    said = first_wrong_kernel(
        unused, Unstable(), tmp_path / "bundle", unused, unused, [GoldenCase((values,), (values,))]
    )
    assert "the model itself is unstable" in said
    assert "kernel" not in said


class Sums:
    """Keeps a number for each position, and adds up those that are known there."""

    def __init__(self, factor: float = 1.0) -> None:
        self._kept, self._factor = np.zeros(3, np.float32), factor

    def load(self, bundle: Path) -> None:
        """As a session does."""

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        number, position = inputs
        self._kept[position] = number * self._factor
        return [self._kept[: int(position[0]) + 1].sum(keepdims=True)]

    def intermediates(self, inputs: Sequence[np.ndarray]) -> Iterator[KernelOutputs]:
        yield KernelOutputs(0, "sum", (self.run(inputs)[0],))


class Opens:
    """A device with the unscheduled model."""

    @contextlib.contextmanager
    def open_session(self, *_: Any, **__: Any) -> Iterator[Sums]:
        yield Sums()


@pytest.mark.parametrize(
    ("factor", "said"), [(1.0, "unscheduled kernels give the same values"), (2.0, "first at kernel sum")]
)
def test_both_read_the_state_that_the_cases_before_have_made(
    factor: float, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The unscheduled one begins without a state, which is no fault of the kernel that reads it."""
    monkeypatch.setattr(wrong_kernel, "_build_unscheduled", lambda *_: None)
    cases = [GoldenCase((np.array([7 - at]), np.array([at])), ()) for at in range(3)]
    session = Sums(factor)
    for case in (*cases, *(GoldenCase((np.array([9]), np.array([at])), ()) for at in range(3))):
        session.run(case.inputs)
    unused: Any = None
    device: Any = Opens()
    compiled: Any = session
    assert said in first_wrong_kernel(device, compiled, tmp_path / "bundle", unused, unused, cases)
