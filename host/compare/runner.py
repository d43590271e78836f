"""Contenders side by side: interleaved rounds, all others stopped meanwhile, ratios with their bounds.

A machine drifts (clocks, temperature, neighbours) by more than good engines differ. Within one round all
contenders meet the same conditions, so the ratio of a round holds where absolute times do not; idle thread
pools that spin would take the cores of whoever is measured, so their processes are stopped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from host.errors import EngineError, MeasureError, SessionLost
from host.model import Energy, Measurement, comparable

if TYPE_CHECKING:
    from host.transport.session import Session

# With fewer, not even the span from least to greatest covers the median in 95% of cases (1 - 2 / 2^n).
MIN_ROUNDS = 6
_RESAMPLES = 10_000


@dataclass(frozen=True)
class Ratio:
    """How many times as long one contender takes as another, with the 95% bounds.

    Attributes:
        value: median over rounds.
        low, high: bootstrap percentile bounds (2.5% and 97.5%) of that median.
        rounds: rounds it rests on.
    """

    value: float
    low: float
    high: float
    rounds: int


@dataclass(frozen=True)
class PairedResult:
    """What a comparison gave.

    Attributes:
        measurements: all samples of each contender, by name.
        rounds_s: median seconds of each round, by name; rounds correspond.
        rounds_j: joules of a run in each energy window, by name; empty where there is no sensor.
        failed: contenders that did not come through, with the reason.
        windows: the measurement of each energy window, by name; windows correspond.
    """

    measurements: Mapping[str, Measurement]
    rounds_s: Mapping[str, tuple[float, ...]]
    failed: Mapping[str, str] = field(default_factory=dict)
    rounds_j: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    windows: Mapping[str, tuple[Measurement, ...]] = field(default_factory=dict)

    def ratio(self, numerator: str, denominator: str, seed: int = 0) -> Ratio:
        """Time of `numerator` over time of `denominator`.

        Args:
            numerator: a contender.
            denominator: another.
            seed: of the resampling.

        Raises:
            MeasureError: one of them has no measurement.
        """
        for name in (numerator, denominator):
            if name not in self.rounds_s:
                raise MeasureError(f"{name} was not measured: {self.failed.get(name, 'it took no part')}")
        return _ratio(self.rounds_s[numerator], self.rounds_s[denominator], seed)

    def energy_ratio(self, numerator: str, denominator: str, seed: int = 0) -> Ratio:
        """Energy of a run of `numerator` over that of `denominator`, within the sensor's boundary.

        Raises:
            MeasureError: the device has no sensor, or there are too few windows for a bound.
        """
        for name in (numerator, denominator):
            windows = len(self.rounds_j.get(name, ()))
            if windows < MIN_ROUNDS:
                measurement = self.measurements.get(name)
                reason = (
                    measurement.energy.source if measurement else self.failed.get(name, "it took no part")
                )
                raise MeasureError(
                    f"{name} has {windows} energy windows, a 95% bound needs {MIN_ROUNDS} ({reason})"
                )
        first, second = (self.measurements[name].energy for name in (numerator, denominator))
        if (mismatch := comparable(first, second)) is not None:
            raise MeasureError(f"{numerator} and {denominator}: {mismatch}")
        return _ratio(self.rounds_j[numerator], self.rounds_j[denominator], seed)

    def edp_ratio(self, numerator: str, denominator: str, seed: int = 0) -> Ratio:
        """Energy-delay product of a run of `numerator` over that of `denominator`, window by window.

        Raises:
            MeasureError: see `energy_ratio`.
        """
        self.energy_ratio(numerator, denominator, seed)
        products = [
            [one.median_s * joules for one, joules in zip(self.windows[n], self.rounds_j[n], strict=True)]
            for n in (numerator, denominator)
        ]
        return _ratio(products[0], products[1], seed)


def pooled(results: Sequence[PairedResult]) -> PairedResult:
    """Several comparisons of the same contenders, each with other inputs, as one.

    A round is the geometric mean of the corresponding rounds, so that a ratio is the geometric mean of the
    ratios and every comparison weighs the same. Samples and energy are the last comparison's.
    """
    last = results[-1]
    rounds = {
        name: tuple(np.exp(np.mean(np.log([result.rounds_s[name] for result in results]), axis=0)).tolist())
        for name in last.measurements
    }
    failed = {name: reason for result in results for name, reason in result.failed.items()}
    return replace(last, rounds_s=rounds, failed=failed)


def _ratio(numerator: Sequence[float], denominator: Sequence[float], seed: int) -> Ratio:
    logs = np.log(np.asarray(numerator) / np.asarray(denominator))
    low, high = _bootstrap_median(logs, seed)
    return Ratio(math.exp(float(np.median(logs))), math.exp(low), math.exp(high), len(logs))


def _bootstrap_median(values: np.ndarray, seed: int) -> tuple[float, float]:
    drawn = np.random.default_rng(seed).integers(0, len(values), (_RESAMPLES, len(values)))
    medians = np.median(values[drawn], axis=1)
    low, high = np.percentile(medians, [2.5, 97.5])
    return float(low), float(high)


def compare(
    contenders: Mapping[str, Session],
    inputs: Sequence[np.ndarray] | Mapping[str, Sequence[np.ndarray]],
    rounds: int = 10,
    round_s: float = 0.3,
    round_repeats: int = 3,
    warmup_s: float = 0.5,
    energy_rounds: int = 1,
    seed: int = 0,
) -> PairedResult:
    """Measure contenders in interleaved rounds; each has its model loaded already.

    Args:
        contenders: sessions by name.
        inputs: for all of them, or by contender where their formats differ.
        rounds: at least `MIN_ROUNDS`; the order within each is drawn.
        round_s: seconds of samples of each contender in a round, at least.
        round_repeats: samples in a round, at least.
        warmup_s: before the first round, each; later rounds warm up for a tenth of it.
        energy_rounds: windows of energy of each contender, after the rounds, interleaved like them; a
            device without a sensor says so at once. A ratio of energies needs `MIN_ROUNDS`.
        seed: of the order.

    Returns:
        Measurements; a contender that fails on the way is in `failed`, and the others go on.

    Raises:
        MeasureError: too few rounds, or no contender came through.
        DeviceError: the device went away.
    """
    if rounds < MIN_ROUNDS:
        raise MeasureError(f"{rounds} rounds cannot give a 95% bound; take {MIN_ROUNDS} at least")
    race = Race(dict(contenders))
    order = np.random.default_rng(seed)
    try:
        race.line_up(inputs)
        for index in range(rounds):
            warm = warmup_s if index == 0 else warmup_s / 10
            for name in order.permutation(sorted(race.running)):
                race.measure(str(name), warm, round_s, round_repeats)
        for _ in range(energy_rounds):
            for name in order.permutation(sorted(race.running)):
                race.measure_energy(str(name))
    finally:
        race.release()
    return race.result(rounds)


class Race:
    """Contenders that take turns, and what they have shown; one runs at a time.

    Args:
        contenders: sessions by name, each with its model loaded.
        start_c: temperature of the hottest zone that energy windows wait for before they begin; 0 for that
            of the coolest window so far.

    Attributes:
        running: those that have not failed.
        failed: why the others have, by name.
        parts: the rounds of each.
        windows: the energy windows of each.
    """

    def __init__(self, contenders: Mapping[str, Session], start_c: float = 0.0) -> None:
        self.running = dict(contenders)
        self._start_c = start_c
        self.failed: dict[str, str] = {}
        self.parts: dict[str, list[Measurement]] = {name: [] for name in contenders}
        self.windows: dict[str, list[Measurement]] = {name: [] for name in contenders}
        self._all = dict(contenders)

    def line_up(self, inputs: Sequence[np.ndarray] | Mapping[str, Sequence[np.ndarray]]) -> None:
        """Give every contender its inputs and stop it."""
        for name, session in self._all.items():
            own = inputs[name] if isinstance(inputs, Mapping) else inputs
            self.attempt(name, partial(session.set_inputs, own))
            self.attempt(name, session.pause)

    def attempt(self, name: str, action: Callable[[], None]) -> None:
        """Do something with a contender, which drops out if it fails."""
        if name not in self.running:
            return
        try:
            action()
        except (EngineError, SessionLost) as error:
            self.failed[name] = str(error)
            del self.running[name]

    def measure(self, name: str, warmup_s: float, round_s: float, repeats: int) -> None:
        """One round of one contender."""
        plan = dict(energy=False, warmup_s=warmup_s, min_time_s=round_s, min_repeats=repeats)
        self._turn(name, plan, self.parts[name])

    def measure_energy(self, name: str) -> None:
        """An energy window of one contender; immediate where the device has no sensor."""
        # The rounds are the trials: interleaved, so that drift cancels.
        start_c = self._start_c or self._coolest_c()
        plan = dict(energy=True, trials=1, warmup_s=0.0, min_time_s=0.0, min_repeats=1, start_c=start_c)
        self._turn(name, plan, self.windows[name])

    def _coolest_c(self) -> float:
        """The hottest zone at the coolest begin of a window so far: others wait for it; 0 where unknown."""
        windows = (window.state_before for windows in self.windows.values() for window in windows)
        zones = (state.get("temperatures_c", {}).values() for state in windows)
        return min((max(values) for values in zones if values), default=0.0)

    def _turn(self, name: str, plan: dict[str, Any], results: list[Measurement]) -> None:
        session = self._all[name]

        def work() -> None:
            session.resume()
            part = session.measure(warmup_runs=1, **plan)
            session.pause()
            results.append(part)

        self.attempt(name, work)

    def release(self) -> None:
        """Let all contenders run again."""
        for name in list(self.running):
            self.attempt(name, self._all[name].resume)

    def result(self, rounds: int) -> PairedResult:
        """What came of it.

        Args:
            rounds: that each contender had to come through.

        Raises:
            MeasureError: none did.
        """
        whole = {name: parts for name, parts in self.parts.items() if name in self.running}
        if not whole or any(len(parts) != rounds for parts in whole.values()):
            reasons = "; ".join(f"{name}: {reason}" for name, reason in self.failed.items())
            raise MeasureError(f"no contender came through the comparison ({reasons}); measure again")
        joules = {name: _joules([one.energy for one in self.windows[name]]) for name in whole}
        return PairedResult(
            measurements={name: self._merged(name, parts) for name, parts in whole.items()},
            rounds_s={name: tuple(part.median_s for part in parts) for name, parts in whole.items()},
            failed=self.failed,
            rounds_j={name: values for name, values in joules.items() if values},
            windows={name: tuple(self.windows[name]) for name in whole},
        )

    def _merged(self, name: str, parts: Sequence[Measurement]) -> Measurement:
        whole = (*parts, *self.windows[name])
        reasons = dict.fromkeys(why for part in whole for why in part.throttle_reasons)
        between = _throttled_between(whole)
        return replace(
            parts[0],
            times_s=tuple(time for part in parts for time in part.times_s),
            state_after=parts[-1].state_after,
            energy=mean_energy([one.energy for one in self.windows[name]]) or parts[0].energy,
            throttled=any(part.throttled for part in whole) or bool(between),
            throttle_reasons=(*reasons, *([between] if between and not reasons else [])),
            invalid=next((part.invalid for part in whole if part.invalid), ""),
        )


def _throttled_between(parts: Sequence[Measurement]) -> str:
    """What shows that the device was slowed down between two measurements, "" where nothing does.

    Each part by itself sees only what begins within it; a clock that is held down all along does not.
    """
    counts = [
        state.get("throttle_count") for part in parts for state in (part.state_before, part.state_after)
    ]
    known = [int(count) for count in counts if count is not None]
    if not known or max(known) == min(known):
        return ""
    return f"the throttle count rose from {min(known)} to {max(known)}"


def _joules(windows: Sequence[Energy]) -> tuple[float, ...]:
    known = tuple(window.gross_j for window in windows if window.gross_j is not None)
    # A ratio pairs windows, so one without a value takes the others with it.
    return known if len(known) == len(windows) else ()


def mean_energy(windows: Sequence[Energy]) -> Energy | None:
    """One energy for several windows of the same work; the first without a value stands for all.

    None without windows.
    """
    if not windows:
        return None
    missing = next((window for window in windows if window.gross_j is None), None)
    if missing is not None:
        return missing
    joules = _joules(windows)
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
