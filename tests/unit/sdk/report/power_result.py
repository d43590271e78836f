"""A made-up sweep: two variants in three power modes, one of which cannot be set, one of which throttles."""

from __future__ import annotations

import math
from dataclasses import replace

from host.compare.entrants import EntrantResult
from host.compare.power_modes import PowerMode
from host.compare.selection import VariantSelection, select_variants
from host.deploy import DeployResult
from host.model import Measurement
from tests.unit.compare.power_samples import point
from tests.unit.compare.samples import result

MODES = (
    PowerMode("15W", "nvpmodel", True, True),
    PowerMode("MAXN", "nvpmodel", False, True),
    PowerMode("7W", "nvpmodel", False, True),
    PowerMode("10W", "nvpmodel", False, False, "it needs a reboot"),
)


def sweep(objective: str = "energy", cap_w: float | None = None) -> VariantSelection:
    """In 15W: 8 ms and 48 mJ on two threads, 12 ms and 60 mJ on one; MAXN is faster, 7W needs less."""
    points = [
        point(8.0, 48.0, "fastest", 2, "15W", noise=0.02),
        point(12.0, 60.0, "fastest", 1, "15W", noise=0.02),
        point(8.2, 40.0, "least traffic", 2, "15W", noise=0.02),
        point(10.0, 70.0, "untuned", 2, "15W", noise=0.02, deployable=False),
        point(6.0, 66.0, "fastest", 2, "MAXN", noise=0.02, throttled=True),
        point(16.0, 36.0, "fastest", 2, "7W", noise=0.02),
        point(24.0, 50.0, "fastest", 1, "7W", noise=0.02),
    ]
    return select_variants([_lived(one) for one in points], objective, cap_w, "15W", MODES)


def deployment(power: VariantSelection | None = None) -> DeployResult:
    """A deployment with the sweep, whose peer has energy too."""
    whole = result()
    peer = _lived(point(11.0, 80.0, "onnxruntime", 2, "15W", noise=0.02))
    contenders = {
        **whole.contenders,
        "onnxruntime": replace(
            whole.contenders["onnxruntime"],
            measurement=peer.measurement,
            rounds_s=peer.rounds_s,
            windows=peer.windows,
        ),
    }
    return replace(whole, contenders=contenders, power=power or sweep())


def _lived(one: EntrantResult) -> EntrantResult:
    """The point with traces that wander and temperatures that rise with the watts."""
    begin = 1000.0 + 60.0 * one.value("latency") if one.mode == "15W" else 1400.0  # type: ignore[operator]
    windows = tuple(_heated(each, begin + 7.0 * number, number) for number, each in enumerate(one.windows))
    whole = one.measurement
    if whole is not None and whole.throttled:
        whole = replace(whole, throttle_reasons=windows[0].throttle_reasons)
    return replace(one, windows=windows, measurement=whole)


def _heated(one: Measurement, time_s: float, number: int) -> Measurement:
    watts = one.energy.mean_w or 1.0
    trace = tuple(
        (step / 20, watts * (1 + 0.05 * math.sin(step / 3) + 0.1 * (step < 4)), 45.0 + watts + step / 40)
        for step in range(100)
    )
    return replace(
        one,
        energy=replace(one.energy, trace=trace),
        state_before={"time_s": time_s, "temperatures_c": {"cpu": 40.0 + watts + number, "gpu": 38.0}},
        state_after={"time_s": time_s + 5, "temperatures_c": {"cpu": 43.0 + watts + number, "gpu": 39.0}},
        throttle_reasons=("soft temperature limit",) if one.throttled else (),
    )


__all__ = ["MODES", "deployment", "sweep"]
