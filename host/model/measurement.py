"""Times and joules of one program or model on one device."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Start:
    """From a file on the device to the first output, once, on the device's clock.

    Attributes:
        load_s: seconds from the request to a model that is ready: its files are read and checked, the library
            is linked, the engine has made its plan.
        first_run_s: seconds of the first run after that, without the copies of inputs and outputs.
    """

    load_s: float
    first_run_s: float

    @property
    def first_output_s(self) -> float:
        """Seconds until the first output: loading and the first run together."""
        return self.load_s + self.first_run_s


@dataclass(frozen=True)
class Energy:
    """Joules of one run, or why there are none; what is not known is None, never 0.

    Attributes:
        kind: "measured", "estimated" (a formula with fitted constants), "simulated" or "unavailable".
        gross_j: all energy within the boundary; None if unavailable.
        above_idle_j: gross minus idle power times the window; None if unavailable or not distinguishable
            from idle.
        source: the sensor, or the reason for its absence.
        boundary: what the sensor sees ("package", "module", "board", "dc-input", "wall", "pmic-rails", ...).
        rails: that were summed.
        mean_w, peak_w: gross watts over the windows, and the most in a sample (between two counter readings).
        idle_w, idle_std_w: watts without work, and their standard deviation.
        std_j: standard deviation of `gross_j` over trials; None with fewer than two.
        trials: windows that the figures are the mean of.
        n_inferences, n_samples, n_dropped: of all these windows: runs, readings, readings that failed.
        duration_s: of all these windows.
        sample_period_s: seconds between two readings as they came.
        accuracy: of the sensor, as its maker states it, "" where unknown.
        reason: why a value is missing ("not distinguishable from idle", "no idle power was taken").
        trace: power over time: seconds since the first window began, watts, hottest zone in degrees Celsius
            or None.
    """

    kind: str
    gross_j: float | None
    above_idle_j: float | None
    source: str
    boundary: str = ""
    rails: tuple[str, ...] = ()
    mean_w: float | None = None
    peak_w: float | None = None
    idle_w: float | None = None
    idle_std_w: float | None = None
    std_j: float | None = None
    trials: int | None = None
    n_inferences: int | None = None
    n_samples: int | None = None
    n_dropped: int | None = None
    duration_s: float | None = None
    sample_period_s: float | None = None
    accuracy: str = ""
    reason: str = ""
    trace: tuple[tuple[float, float, float | None], ...] = ()


def comparable(a: Energy, b: Energy) -> str | None:
    """Why two energies must not be compared, None where they may.

    Joules of a package and of a whole board are different things, and so are a reading and an estimate.
    """
    for one in (a, b):
        if one.gross_j is None:
            return f"energy is unavailable ({one.reason or one.source})"
    if a.kind != b.kind:
        return f"one energy is {a.kind}, the other {b.kind}: measure both the same way"
    if a.boundary != b.boundary:
        return f"one energy is of the {a.boundary or 'unknown'} boundary, the other of the " + (
            f"{b.boundary or 'unknown'} boundary: measure both with the same sensor"
        )
    if set(a.rails) != set(b.rails):
        rails = " and ".join(", ".join(one.rails) or "none" for one in (a, b))
        return f"the energies are of other rails ({rails}): measure both with the same sensor"
    return None


@dataclass(frozen=True)
class Measurement:
    """Times of one program or model on one device, on the device's own clock.

    Attributes:
        times_s: every sample, in order, seconds per run.
        energy: joules per run.
        state_before, state_after: clocks, load, temperatures, throttling as the agent reports them.
        threads: threads used.
        throttled: the device was slowed down meanwhile, in spite of being measured again: the times are not
            what it can do. Nothing learns from it, and no program is the best by it.
        throttle_reasons: what shows it.
        invalid: why it says nothing at all (the supply is too weak), "" where it does.
        conditions: how it was measured: `retries` after throttling, `cooldown_s`, `cooldown_timeouts`.
        instructions: of one run, where an emulator counted them in place of the time; None elsewhere.
    """

    times_s: tuple[float, ...]
    energy: Energy
    state_before: dict[str, Any]
    state_after: dict[str, Any]
    threads: int
    throttled: bool = False
    throttle_reasons: tuple[str, ...] = ()
    invalid: str = ""
    conditions: dict[str, Any] = field(default_factory=dict)
    instructions: float | None = None

    @property
    def trusted(self) -> bool:
        """Whether a program may be judged by it: the device ran as it can."""
        return not self.throttled and not self.invalid

    @property
    def n(self) -> int:
        """Number of samples."""
        return len(self.times_s)

    @property
    def median_s(self) -> float:
        """Median seconds per run."""
        import numpy as np

        return float(np.median(self.times_s))

    @property
    def p10_s(self) -> float:
        """10th percentile of seconds per run."""
        return self._percentile_s(10)

    @property
    def p90_s(self) -> float:
        """90th percentile of seconds per run."""
        return self._percentile_s(90)

    def _percentile_s(self, percent: int) -> float:
        # Here, so that what only asks a device how it is does not load NumPy.
        import numpy as np

        return float(np.percentile(self.times_s, percent))
