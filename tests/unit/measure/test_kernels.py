"""The energy of a kernel, as a device sends it: it has to be possible, since programs are compared by it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from host.errors import MeasureError
from host.measure.kernels import checked_energy
from host.model import Energy, Measurement

GOOD = Energy("measured", 0.002, 0.001, "rapl", mean_w=4.0, std_j=1e-5)


def measured(energy: Energy) -> Measurement:
    return Measurement((0.0005,), energy, {}, {}, 1)


@pytest.mark.parametrize(
    "energy",
    [
        GOOD,
        replace(GOOD, std_j=None),
        Energy("unavailable", None, None, "no sensor", reason="no sensor"),
    ],
)
def test_what_a_sensor_measures_is_taken(energy: Energy) -> None:
    assert checked_energy(measured(energy)).energy == energy


@pytest.mark.parametrize(
    "change",
    [
        {"gross_j": 0.0},
        {"gross_j": -1.0},
        {"gross_j": 1e300},
        {"gross_j": float("nan")},
        {"mean_w": None},
        {"mean_w": 0.0},
        {"mean_w": float("inf")},
        {"std_j": -1e-9},
        {"std_j": float("nan")},
    ],
)
def test_what_no_sensor_measures_is_refused(change: dict[str, float | None]) -> None:
    with pytest.raises(MeasureError, match="no usable energy of a kernel; measure again"):
        checked_energy(measured(replace(GOOD, **change)))  # type: ignore[arg-type]
