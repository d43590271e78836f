"""Joules of windows of work, from the readings of a sensor.

All times are seconds of CLOCK_MONOTONIC of this machine. A reading is stamped at the midpoint of its read.
Power is integrated by the trapezoid rule with the readings interpolated at the edges of the window; of
counters the differences are taken between the readings at which they changed.
"""

from __future__ import annotations

import bisect
import math
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

Sample = Tuple[float, float]
# Seconds, watts, hottest zone in degrees Celsius.
TracePoint = Tuple[float, float, Optional[float]]

# Share of readings that may fail before a window counts as unusable.
MAX_DROPPED_SHARE = 0.05
# Share of the window that known differences of a counter have to cover.
_MIN_COVERED = 0.5
# Readings of power below which their mean says nothing.
_MIN_READINGS = 5
_TRACE_POINTS = 120
# Two readings of a counter so near say more of when they were made than of power.
_SHORTEST_S = 0.05
# A reading that comes late by a few milliseconds must not become a peak of power.
_POWER_SPAN_S = 0.5


class EnergyError(Exception):
    """The energy of a window is not known; the message says why."""


class Idle(NamedTuple):
    """Power without work: mean and standard deviation, watts."""

    mean_w: float
    std_w: float


class Trial(NamedTuple):
    """One window.

    Attributes:
        joules: of all of it.
        seconds: its length.
        runs: inferences in it.
        n_samples, n_dropped: readings in it, and those that failed.
        peak_w: the most that a reading shows.
        begin_s: when it began.
        trace: power over time.
    """

    joules: float
    seconds: float
    runs: int
    n_samples: int
    n_dropped: int
    peak_w: float
    begin_s: float
    trace: Tuple[TracePoint, ...]


def trapezoid_joules(samples: Sequence[Sample], start_s: float, end_s: float) -> float:
    """Energy of a window from samples of power.

    Args:
        samples: (time in seconds, watts), in order; the first no later than `start_s` and the last no
            earlier than `end_s`, or they are held constant up to the edge.
        start_s: begin of the window.
        end_s: end of the window.

    Raises:
        ValueError: no samples, or a window of no length.
    """
    if not samples or end_s <= start_s:
        raise ValueError("energy needs at least one sample and a window of some length")
    times = [time_s for time_s, _ in samples]
    first = bisect.bisect_right(times, start_s)
    last = bisect.bisect_left(times, end_s)
    points = [
        (start_s, _interpolated(samples, first, start_s)),
        *samples[first:last],
        (end_s, _interpolated(samples, last, end_s)),
    ]
    return math.fsum((p0 + p1) / 2.0 * (t1 - t0) for (t0, p0), (t1, p1) in zip(points, points[1:]))


def _interpolated(samples: Sequence[Sample], index: int, at_s: float) -> float:
    """Power at a time before sample `index` and not before the one ahead of it."""
    if index == 0:
        return samples[0][1]
    if index == len(samples):
        return samples[-1][1]
    (t0, p0), (t1, p1) = samples[index - 1], samples[index]
    return p1 if t1 == t0 else p0 + (p1 - p0) * (at_s - t0) / (t1 - t0)


class Span(NamedTuple):
    """What a counter shows between two readings: mean watts from begin to end."""

    begin_s: float
    end_s: float
    watts: float


def counter_spans(
    samples: Sequence[Tuple[float, Any]], joules: Callable[[Any, Any], Optional[float]]
) -> Tuple[List[Span], int]:
    """Power between the readings at which a counter changed.

    Args:
        samples: (time in seconds, reading), in order.
        joules: difference of two readings, None where it is not known (a counter that fell).

    Returns:
        Spans in order, and how many intervals were discarded.
    """
    spans: List[Span] = []
    discarded = 0
    if not samples:
        return spans, discarded
    begin_s, reading = samples[0]
    aligned = False
    for at_s, new in samples[1:]:
        if new == reading:
            continue
        energy = joules(reading, new)
        if energy is None:
            discarded += 1
        elif at_s - begin_s < _SHORTEST_S and aligned:
            continue
        elif at_s > begin_s:
            spans.append(Span(begin_s, at_s, energy / (at_s - begin_s)))
        begin_s, reading, aligned = at_s, new, True
    # The first one begins at a reading and not at a change, in the middle of what its energy was spent in.
    return (spans[1:] if len(spans) > 2 else spans), discarded


def _joined(spans: Sequence[Span]) -> List[Span]:
    """Spans put together until they are long enough for their power to say more than when they were read."""
    joined: List[Span] = []
    for span in spans:
        last = joined[-1] if joined else None
        if last is None or last.end_s - last.begin_s >= _POWER_SPAN_S or last.end_s != span.begin_s:
            joined.append(span)
            continue
        seconds = span.end_s - last.begin_s
        joules = last.watts * (last.end_s - last.begin_s) + span.watts * (span.end_s - span.begin_s)
        joined[-1] = Span(last.begin_s, span.end_s, joules / seconds)
    return joined


def counter_joules(spans: Sequence[Span], start_s: float, end_s: float) -> float:
    """Energy of a window from spans; what they do not cover counts with their mean power.

    Raises:
        EnergyError: they cover too little of it.
    """
    covered = 0.0
    parts = []
    for span in spans:
        length = min(span.end_s, end_s) - max(span.begin_s, start_s)
        if length > 0:
            covered += length
            parts.append(length * span.watts)
    if covered < _MIN_COVERED * (end_s - start_s):
        raise EnergyError("the counter changed too seldom for a window of %.2f s" % (end_s - start_s))
    return math.fsum(parts) * (end_s - start_s) / covered


class Readings(NamedTuple):
    """What a sampler has seen.

    Attributes:
        counter: the sensor's differences of readings, None for readings of watts.
        samples: (seconds, reading).
        dropped: times of readings that failed.
        polled: (seconds, what the poll gave).
    """

    counter: Optional[Callable[[Any, Any], Optional[float]]]
    samples: List[Tuple[float, Any]]
    dropped: List[float]
    polled: List[Tuple[float, Any]]

    def trial(self, start_s: float, end_s: float, runs: int, hottest: Sequence[Any] = ()) -> Trial:
        """One window of them.

        Args:
            start_s: begin of the window.
            end_s: end of the window.
            runs: inferences in it.
            hottest: (seconds, degrees Celsius or None) of the hottest zone.

        Raises:
            EnergyError: they do not tell its energy.
        """
        if runs < 1 or end_s <= start_s:
            raise EnergyError("the window has no length or no inference")
        count = sum(start_s <= at_s <= end_s for at_s, _ in self.samples)
        dropped = sum(start_s <= at_s <= end_s for at_s in self.dropped)
        _check_dropped(dropped, count)
        power, joules, discarded = self._power(start_s, end_s, count)
        dropped += discarded
        _check_dropped(dropped, count)
        inside = [point for point in power if start_s <= point[0] <= end_s] or power
        peak = max(watts for _, watts in inside)
        return Trial(joules, end_s - start_s, runs, count, dropped, peak, start_s, _trace(inside, hottest))

    def _power(self, start_s: float, end_s: float, count: int) -> Tuple[List[Sample], float, int]:
        """Power over time, energy of the window, intervals discarded."""
        if self.counter is None:
            if count < _MIN_READINGS:
                raise EnergyError(
                    "only %d readings of the sensor fell into a window of %.2f s: make it longer"
                    % (count, end_s - start_s)
                )
            return self.samples, trapezoid_joules(self.samples, start_s, end_s), 0
        spans, discarded = counter_spans(self.samples, self.counter)
        joules = counter_joules(spans, start_s, end_s)
        return [((span.begin_s + span.end_s) / 2.0, span.watts) for span in _joined(spans)], joules, discarded


def _check_dropped(dropped: int, count: int) -> None:
    if dropped > MAX_DROPPED_SHARE * (count + dropped):
        raise EnergyError("%d of %d readings of the sensor failed" % (dropped, count + dropped))


def _trace(power: Sequence[Sample], hottest: Sequence[Any]) -> Tuple[TracePoint, ...]:
    """Power over time in few points, means of equally many readings, with the temperature known by then."""
    if not power:
        return ()
    step = max(1, math.ceil(len(power) / _TRACE_POINTS))
    known = [at_s for at_s, _ in hottest]
    points: List[TracePoint] = []
    for index in range(0, len(power), step):
        group = power[index : index + step]
        at_s = math.fsum(time_s for time_s, _ in group) / len(group)
        watts = math.fsum(value for _, value in group) / len(group)
        before = bisect.bisect_right(known, at_s)
        temperature = hottest[max(0, before - 1)][1] if hottest else None
        points.append((at_s, watts, temperature))
    return tuple(points)


def unavailable(reason: str) -> Dict[str, Any]:
    """The record of energy that could not be measured."""
    return {
        "kind": "unavailable",
        "gross_j": None,
        "above_idle_j": None,
        "source": reason,
        "reason": reason,
        "boundary": "",
        "rails": [],
    }


def record(description: Dict[str, Any], trials: Sequence[Trial], idle: Optional[Idle]) -> Dict[str, Any]:
    """Energy of one inference out of windows of many.

    `above_idle_j` is None where it is not distinguishable from idle (below three standard deviations of
    the idle energy of the windows) or where no idle power is known; `reason` says which.

    Args:
        description: of the sensor.
        trials: one at least.
        idle: power without work, None where it was not taken.
    """
    per_run = [trial.joules / trial.runs for trial in trials]
    mean = math.fsum(per_run) / len(per_run)
    joules = math.fsum(trial.joules for trial in trials)
    seconds = math.fsum(trial.seconds for trial in trials)
    runs = sum(trial.runs for trial in trials)
    samples = sum(trial.n_samples for trial in trials)
    begin_s = trials[0].begin_s
    spread = math.sqrt(math.fsum((j - mean) ** 2 for j in per_run) / max(1, len(per_run) - 1))
    result: Dict[str, Any] = {
        "kind": description.get("kind", "measured"),
        "gross_j": joules / runs,
        "above_idle_j": None,
        "source": "%s (%s)" % (description["source"], ", ".join(description["rails"])),
        "boundary": description["boundary"],
        "rails": list(description["rails"]),
        "accuracy": description.get("accuracy", ""),
        "mean_w": joules / seconds,
        "peak_w": max(trial.peak_w for trial in trials),
        "idle_w": idle.mean_w if idle else None,
        "idle_std_w": idle.std_w if idle else None,
        "std_j": spread if len(trials) > 1 else None,
        "trials": len(trials),
        "n_inferences": runs,
        "n_samples": samples,
        "n_dropped": sum(trial.n_dropped for trial in trials),
        "duration_s": seconds,
        "sample_period_s": seconds / samples if samples else None,
        "trace": [[t - begin_s, w, c] for trial in trials for t, w, c in trial.trace],
    }
    if idle is None:
        result["reason"] = "no idle power was taken"
        return result
    above = joules - idle.mean_w * seconds
    if above <= 3.0 * idle.std_w * seconds:
        result["reason"] = "not distinguishable from idle"
        return result
    result["above_idle_j"] = above / runs
    return result
