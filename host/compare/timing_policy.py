"""How often whole models run on a device, and whether their times decide anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from host.compare.runner import Effort
from host.statistics import MIN_TRIALS

if TYPE_CHECKING:
    from host.transport import Device

# A choice by energy needs a bound for it, and a single window gives none; peers are fewer than variants times
# modes, so they are given more windows.
_ENGINE_WINDOWS = 6


@dataclass(frozen=True)
class TimingPolicy:
    """How the times of a device are used.

    Attributes:
        rounds: rounds of a comparison of engines.
        decides: whether times are meaningful. On an emulator they are not: they select nothing, peers are
            measured only on request, and instructions are counted instead.
    """

    rounds: int
    decides: bool

    def engine_effort(self, objective: str) -> Effort:
        """How much is measured of each engine."""
        return Effort(rounds=self.rounds, windows=1 if objective == "latency" else _ENGINE_WINDOWS)

    def variant_effort(self, without_sensor: bool, in_power_modes: bool) -> Effort:
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


def timing_policy(device: Device, rounds: int) -> TimingPolicy:
    """The policy for a device.

    Args:
        device: connected.
        rounds: requested by the user, for devices whose times are meaningful.
    """
    if device.emulated:
        # No more than a bound needs: the report has one, and nothing goes by it.
        return TimingPolicy(MIN_TRIALS, decides=False)
    return TimingPolicy(rounds, decides=True)
