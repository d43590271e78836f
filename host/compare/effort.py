"""How much is measured of whole models on a device."""

from __future__ import annotations

from host.compare.runner import Effort
from host.model import TimingPolicy
from host.statistics import MIN_TRIALS

# A choice by energy needs a bound for it, and a single window gives none; peers are fewer than variants times
# modes, so they are given more windows.
_ENGINE_WINDOWS = 6


def engine_effort(timing: TimingPolicy, rounds: int, objective: str, without_sensor: bool) -> Effort:
    """How much is measured of each engine.

    Args:
        timing: of the device.
        rounds: requested by the user, for devices whose times decide.
        objective: of the selection: "latency", "energy" or "edp".
        without_sensor: the device has no energy sensor that can be read.
    """
    windows = 0 if without_sensor else 1 if objective == "latency" else _ENGINE_WINDOWS
    # No more than a bound needs where nothing goes by it: the report has one.
    used = rounds if timing.decides else MIN_TRIALS
    return Effort(rounds=used, windows=windows)


def variant_effort(without_sensor: bool, in_power_modes: bool) -> Effort:
    """How much is measured of each variant in each power mode.

    Args:
        without_sensor: the device has no energy sensor that can be read.
        in_power_modes: several modes are measured.
    """
    windows = 0 if without_sensor else 1
    if without_sensor and not in_power_modes:
        # Before and after a tuning, nothing else: differences of a few percent need no more.
        return Effort(passes=3, rounds=2, round_s=0.2, windows=windows)
    return Effort(passes=3, rounds=3, windows=windows)
