"""Energy of several windows, and the idle power that is subtracted from it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from host.model import Energy
from host.statistics import MIN_TRIALS, Estimate, t975


@dataclass(frozen=True)
class IdlePower:
    """Idle power in one mode.

    Attributes:
        mean_w, std_w: watts, and their standard deviation; None if they could not be measured.
        reason: why they could not be measured.
    """

    mean_w: float | None
    std_w: float | None
    reason: str = ""

    def applied(self, energy: Energy) -> Energy:
        """An energy of this mode with its net figure computed from this idle power."""
        if energy.gross_j is None:
            return energy
        whole = replace(energy, above_idle_j=None, idle_w=self.mean_w, idle_std_w=self.std_w)
        if self.mean_w is None or self.std_w is None or not energy.duration_s or not energy.n_inferences:
            return replace(whole, reason=self.reason or "no idle power was taken in this power mode")
        run_s = energy.duration_s / energy.n_inferences
        above = energy.gross_j - self.mean_w * run_s
        if above <= 3.0 * self.std_w * run_s:
            return replace(whole, reason="not distinguishable from idle")
        return replace(whole, above_idle_j=above, reason="")


def mean_energy(windows: Sequence[Energy]) -> Energy | None:
    """The mean energy of several windows of the same work; if one has no value, the first such window.

    None without windows.
    """
    if not windows:
        return None
    missing = next((window for window in windows if window.gross_j is None), None)
    if missing is not None:
        return missing
    joules = [window.gross_j for window in windows if window.gross_j is not None]
    above = [window.above_idle_j for window in windows if window.above_idle_j is not None]
    several = len(windows) > 1
    return replace(
        windows[0],
        gross_j=float(np.mean(joules)),
        above_idle_j=float(np.mean(above)) if len(above) == len(windows) else None,
        mean_w=_average([window.mean_w for window in windows]),
        peak_w=max((window.peak_w for window in windows if window.peak_w is not None), default=None),
        std_j=float(np.std(joules, ddof=1)) if several else windows[0].std_j,
        trials=sum(window.trials or 1 for window in windows),
        n_inferences=_total([window.n_inferences for window in windows]),
        n_samples=_total([window.n_samples for window in windows]),
        n_dropped=_total([window.n_dropped for window in windows]),
        duration_s=_average([window.duration_s for window in windows], len(windows)),
        reason=next((window.reason for window in windows if window.reason), ""),
    )


def _average(values: Sequence[float | None], factor: int = 1) -> float | None:
    known = [value for value in values if value is not None]
    return factor * float(np.mean(known)) if len(known) == len(values) else None


def _total(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def estimate_of_trials(energy: Energy) -> Estimate | None:
    """Joules of a run over the agent's trials, with 95% bounds from their spread; None without energy."""
    if energy.gross_j is None:
        return None
    trials = energy.trials or 1
    if energy.std_j is None or trials < MIN_TRIALS:
        return Estimate(energy.gross_j, n=trials)
    half = t975(trials - 1) * energy.std_j / math.sqrt(trials)
    return Estimate(energy.gross_j, energy.gross_j - half, energy.gross_j + half, trials)
