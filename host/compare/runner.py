"""Interleaved measurement of sessions; while one is measured, the others are stopped.

The drift of a machine (clocks, temperature, other work) is larger than the difference between good engines.
Within one round all sessions have the same conditions, so the ratios of a round are valid even if absolute
times are not. Spinning thread pools of other sessions would take cores from the measured one, so their
processes are stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

# Before anything that can be interrupted: its first import drops what the handler of a signal raises.
from numpy.random import default_rng

from host.compare.energy_windows import IdlePower, mean_energy
from host.compare.entrants import EntrantResult
from host.errors import EngineError, MeasureError, SessionLost
from host.model import Measurement
from host.progress import Progress, Silence
from host.statistics import MIN_TRIALS

if TYPE_CHECKING:
    import numpy as np

    from host.transport.session import Session


@dataclass(frozen=True)
class Effort:
    """How much is measured of each session under each condition.

    Attributes:
        passes: over all conditions, so that drift affects all of them equally.
        rounds: rounds of latency in a pass.
        windows: energy windows in a pass; immediate where the device has no sensor.
        round_s: seconds of samples in a round, at least.
        round_repeats: samples in a round, at least.
        warmup_s: before the first round of a pass; later rounds warm up for a tenth of it.
    """

    passes: int = 1
    rounds: int = 10
    windows: int = 1
    round_s: float = 0.3
    round_repeats: int = 3
    warmup_s: float = 0.5


@dataclass(frozen=True, eq=False)
class Condition:
    """A condition under which all sessions are measured.

    Attributes:
        inputs: of the model.
        name: distinguishes it from the others.
        energy: whether its energy windows are taken.
        absent: keys of the sessions that are not measured under it.
        enter: brings the device into it; raises `MeasureError` if the device refuses.
        idle_power: measures the idle power; None if the idle power is the same under all conditions.
    """

    inputs: Sequence[np.ndarray]
    name: str = ""
    energy: bool = True
    absent: Collection[str] = ()
    enter: Callable[[], None] = lambda: None
    idle_power: Callable[[], IdlePower] | None = None


class InterleavedRun:
    """Measures sessions in turn under one condition after the other; one session runs at a time.

    Args:
        sessions: by key, each with its model loaded.
        conditions: in the order of measuring.
        effort: how much is measured.
        start_c: temperature of the hottest zone at which an energy window may begin; 0 for that of the
            coolest window so far.
        seed: of the order within a round.

    Attributes:
        failed: why sessions dropped out, by key.
        refused: why conditions could not be entered, by name.
    """

    def __init__(
        self,
        sessions: Mapping[str, Session],
        conditions: Sequence[Condition],
        effort: Effort,
        start_c: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.failed: dict[str, str] = {}
        self.refused: dict[str, str] = {}
        self._sessions = dict(sessions)
        self._conditions = tuple(conditions)
        self._effort = effort
        self._start_c = start_c
        self._order = default_rng(seed)
        self._loaded_inputs: Sequence[np.ndarray] | None = None
        self._idle: dict[str, IdlePower] = {}
        self._rounds: dict[tuple[str, str], list[Measurement]] = {}
        self._windows: dict[tuple[str, str], list[Measurement]] = {}

    def run(self, progress: Progress, times_count: bool = True) -> None:
        """Measure everything; a session that fails is left out, and the others continue.

        Args:
            progress: receives the passes, and after each round the medians so far under its condition.
            times_count: whether times say anything, and are shown.

        Raises:
            DeviceError: the device was lost.
        """
        done, total = 0, self._effort.passes * len(self._conditions)
        try:
            for number in range(self._effort.passes):
                # There and back again: a board that warms up slows every condition down alike.
                for condition in self._conditions if number % 2 == 0 else reversed(self._conditions):
                    if self._effort.passes > 1:
                        progress.status(f"{condition.name or 'measuring'}, pass {number + 1}")
                    if condition.name not in self.refused:
                        self._measure(condition, progress if times_count else Silence())
                    done += 1
                    progress.advance(done, total)
        finally:
            self._release()

    def _measure(self, condition: Condition, progress: Progress) -> None:
        """Measure one pass under one condition; the medians so far are reported after each round."""
        try:
            condition.enter()
        except MeasureError as error:
            self.refused[condition.name] = str(error)
            return
        self._load_inputs(condition.inputs)
        effort = self._effort
        windows = effort.windows if condition.energy else 0
        if windows and condition.idle_power is not None and condition.name not in self._idle:
            self._idle[condition.name] = condition.idle_power()
        for number in range(effort.rounds):
            # Clocks take a moment to follow a new condition.
            plan = dict(
                energy=False,
                warmup_s=effort.warmup_s if number == 0 else effort.warmup_s / 10,
                min_time_s=effort.round_s,
                min_repeats=effort.round_repeats,
            )
            for key in self._random_order(condition):
                self._measure_entrant(key, plan, self._rounds.setdefault((condition.name, key), []))
            progress.latencies(self._medians(condition))
        for _ in range(windows):
            for key in self._random_order(condition):
                # The windows are the trials: interleaved, so that drift cancels.
                start_c = self._start_c or self._coolest_c(condition.name)
                plan = dict(
                    energy=True, trials=1, warmup_s=0.0, min_time_s=0.0, min_repeats=1, start_c=start_c
                )
                self._measure_entrant(key, plan, self._windows.setdefault((condition.name, key), []))

    def _load_inputs(self, inputs: Sequence[np.ndarray]) -> None:
        """Give every session its inputs and stop it."""
        if inputs is self._loaded_inputs:
            return
        if self._loaded_inputs is not None:
            self._release()
        for key, session in self._sessions.items():
            self._attempt(key, partial(session.set_inputs, inputs))
            self._attempt(key, session.pause)
        self._loaded_inputs = inputs

    def _release(self) -> None:
        """Resume all sessions; one that is lost fails alone."""
        for key, session in self._sessions.items():
            self._attempt(key, session.resume)

    def _attempt(self, key: str, action: Callable[[], None]) -> None:
        """Run an action on a session; a session that fails is left out from then on."""
        if key in self.failed:
            return
        try:
            action()
        except (EngineError, SessionLost) as error:
            self.failed[key] = str(error)

    def _measure_entrant(self, key: str, plan: dict[str, Any], results: list[Measurement]) -> None:
        session = self._sessions[key]

        def work() -> None:
            session.resume()
            part = session.measure(warmup_runs=1, **plan)
            session.pause()
            results.append(part)

        self._attempt(key, work)

    def _random_order(self, condition: Condition) -> list[str]:
        running = [key for key in self._sessions if key not in self.failed and key not in condition.absent]
        return [str(key) for key in self._order.permutation(sorted(running))]

    def _medians(self, condition: Condition) -> dict[str, float]:
        """Median seconds of all samples so far of each session that runs, by its name or key."""
        keys = [key for key in self._sessions if key not in self.failed and key not in condition.absent]
        names = [key.partition("/")[0] for key in keys]
        times = {
            key: [time for part in self._rounds[condition.name, key] for time in part.times_s] for key in keys
        }
        return {
            # Variants of the same name differ in their threads.
            name if names.count(name) == 1 else key: median(times[key])
            for name, key in zip(names, keys, strict=True)
        }

    def _coolest_c(self, condition: str) -> float:
        """Temperature that windows wait for: the coolest start of a window so far; 0 if unknown."""
        states = (
            window.state_before
            for (name, _), windows in self._windows.items()
            if name == condition
            for window in windows
        )
        zones = (state.get("temperatures_c", {}).values() for state in states)
        return min((max(values) for values in zones if values), default=0.0)

    def results(self, condition: Condition) -> dict[str, EntrantResult]:
        """The figures of each session under a condition, by key; empty if the condition was refused."""
        if condition.name in self.refused:
            return {}
        present = [key for key in self._sessions if key not in condition.absent]
        return {key: self._result(condition.name, key) for key in present}

    def _result(self, condition: str, key: str) -> EntrantResult:
        if key in self.failed:
            return EntrantResult(key, reason=self.failed[key])
        rounds = self._rounds[condition, key]
        idle = self._idle.get(condition)
        windows = tuple(
            one if idle is None else replace(one, energy=idle.applied(one.energy))
            for one in self._windows.get((condition, key), ())
        )
        return EntrantResult(
            key,
            measurement=_merged(rounds, windows),
            rounds_s=tuple(part.median_s for part in rounds),
            windows=windows,
        )


def compare_sessions(
    sessions: Mapping[str, Session], inputs: Sequence[np.ndarray], effort: Effort
) -> dict[str, EntrantResult]:
    """Measure sessions in interleaved rounds under one condition.

    Args:
        sessions: by key, each with its model loaded.
        inputs: of the model.
        effort: how much is measured; a ratio needs `statistics.MIN_TRIALS` rounds for its bounds.

    Returns:
        Figures by key; a session that failed has a reason instead.

    Raises:
        MeasureError: too few rounds for a bound, or every session failed.
        DeviceError: the device was lost.
    """
    require_bounds(effort)
    condition = Condition(inputs)
    run = InterleavedRun(sessions, [condition], effort)
    run.run(Silence())
    results = run.results(condition)
    require_any(results.values())
    return results


def require_bounds(effort: Effort) -> None:
    """Refuse an effort with too few rounds for a 95% bound.

    Raises:
        MeasureError: the effort has too few rounds.
    """
    rounds = effort.passes * effort.rounds
    if rounds < MIN_TRIALS:
        raise MeasureError(f"{rounds} rounds cannot give a 95% bound; take {MIN_TRIALS} at least")


def require_any(results: Collection[EntrantResult]) -> None:
    """Refuse a comparison without figures.

    Raises:
        MeasureError: every session failed; the message has the reasons.
    """
    if not any(one.measurement is not None for one in results):
        reasons = "; ".join(f"{one.name}: {one.reason}" for one in results if one.reason)
        raise MeasureError(f"every session of the comparison failed ({reasons}); measure again")


def _merged(rounds: Sequence[Measurement], windows: Sequence[Measurement]) -> Measurement:
    whole = (*rounds, *windows)
    reasons = dict.fromkeys(why for part in whole for why in part.throttle_reasons)
    between = _throttled_between(whole)
    return replace(
        rounds[0],
        times_s=tuple(time for part in rounds for time in part.times_s),
        state_after=rounds[-1].state_after,
        energy=mean_energy([one.energy for one in windows]) or rounds[0].energy,
        throttled=any(part.throttled for part in whole) or bool(between),
        throttle_reasons=(*reasons, *([between] if between and not reasons else [])),
        invalid=next((part.invalid for part in whole if part.invalid), ""),
    )


def _throttled_between(parts: Sequence[Measurement]) -> str:
    """Evidence that the device was slowed down between two measurements, "" if none.

    A single measurement shows only what begins during it, and not a clock that is reduced from the start.
    """
    counts = [
        state.get("throttle_count") for part in parts for state in (part.state_before, part.state_after)
    ]
    known = [int(count) for count in counts if count is not None]
    if not known or max(known) == min(known):
        return ""
    return f"the throttle count rose from {min(known)} to {max(known)}"
