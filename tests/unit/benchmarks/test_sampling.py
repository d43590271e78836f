"""The benchmark of sampling measures a process that samples."""

from __future__ import annotations

import pytest

from benchmarks.sampling import KINDS, cost


@pytest.mark.parametrize("kind", ["ina3221 (hwmon, total)", "rpi5_pmic"])
def test_a_kind_of_sensor_has_its_cost(kind: str) -> None:
    found = cost(KINDS[kind], 0.5)
    assert found["readings_per_s"] == (50.0 if kind.startswith("ina") else 5.0)
    assert 0.0 <= found["share_of_a_core"] < 1.0 and found["resident_mb"] > 1.0
