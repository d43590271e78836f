"""Kernels of a simulated board take its time, not this machine's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from device_agent.simulation.executor import SimulatedEngine


class _Engine:
    def invoke(self) -> None:
        """Nothing to compute."""

    def profile(self, runs: int) -> list[dict[str, Any]]:
        assert runs == 3
        return [
            {"name": "a", "calls": 2, "seconds": 0.5},
            {"name": "b", "calls": 1, "seconds": 1.5},
            {"name": "known", "calls": 4, "seconds": 9.0},
        ]


@pytest.mark.parametrize(
    ("model_s", "seconds"),
    [(0.010, {"a": 0.0015, "b": 0.0045, "known": 0.004}), (0.003, {"a": 0.0, "b": 0.0, "known": 0.004})],
)
def test_kernels_share_the_time_of_a_run(model_s: float, seconds: dict[str, float]) -> None:
    scenario = SimpleNamespace(
        factor=1.0, model_s=lambda name: model_s, kernel_s=lambda name: 0.001 if name == "known" else None
    )
    engine = SimulatedEngine(_Engine(), "tvm", SimpleNamespace(scenario=scenario))
    found = {one["name"]: one["seconds"] for one in engine.profile(3)}
    assert found == {name: pytest.approx(value) for name, value in seconds.items()}
