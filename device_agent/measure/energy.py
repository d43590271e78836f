"""Computes the joules of windows of work from the readings of a sensor.

All times are seconds of CLOCK_MONOTONIC of this machine. The time of a reading is the midpoint of its read.
Power is integrated by the trapezoid rule, with the readings interpolated at the edges of the window. For
counters, the differences are taken between the readings at which the counter changed.
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
# Share of the window that the known differences of a counter must cover.
_MIN_COVERED = 0.5
# With fewer power readings than this, their mean is not reliable.
_MIN_READINGS = 5
_TRACE_POINTS = 120
# Readings of a counter that are closer than this depend more on their timing than on power.
_SHORTEST_S = 0.05
# Shorter spans are joined, so that a reading that is a few milliseconds late does not look like a power peak.
_POWER_SPAN_S = 0.5


class EnergyError(Exception):
    """The energy of a window is not known; the message gives the reason."""


class Idle(NamedTuple):
    """Power without work: mean and standard deviation in watts."""

    mean_w: float
    std_w: float


class Trial(NamedTuple):
    """The result of one window.

    Attributes:
        joules: energy of the whole window.
        seconds: length of the window.
        runs: number of inferences in the window.
        n_samples, n_dropped: number of readings in the window, and of readings that failed.
        peak_w: largest power in the window.
        begin_s: start time of the window.
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
    """The energy of a window in joules, from samples of power.

    Args:
        samples: (time in seconds, watts), in order. If the first is later than `start_s` or the last is
            earlier than `end_s`, its power is assumed constant up to the edge.
        start_s: start of the window.
        end_s: end of the window.

    Raises:
        ValueError: there are no samples, or the window has no length.
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
    """The power between samples `index - 1` and `index`; outside the samples, that of the nearest one."""
    if index == 0:
        return samples[0][1]
    if index == len(samples):
        return samples[-1][1]
    (t0, p0), (t1, p1) = samples[index - 1], samples[index]
    return p1 if t1 == t0 else p0 + (p1 - p0) * (at_s - t0) / (t1 - t0)


class Span(NamedTuple):
    """The mean power in watts between two readings of a counter, from begin to end."""

    begin_s: float
    end_s: float
    watts: float


def counter_spans(
    samples: Sequence[Tuple[float, Any]], joules: Callable[[Any, Any], Optional[float]]
) -> Tuple[List[Span], int]:
    """The power between the readings at which a counter changed.

    Args:
        samples: (time in seconds, reading), in order.
        joules: gives the difference of two readings, or None if it is not known (the counter fell).

    Returns:
        The spans in order, and the number of discarded intervals.
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
    # The first span is dropped because it begins at a reading and not at a change: its energy began earlier.
    return (spans[1:] if len(spans) > 2 else spans), discarded


def _joined(spans: Sequence[Span]) -> List[Span]:
    """Joins short spans, because the power of a short span depends mostly on when its readings were taken."""
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
    """The energy of a window from spans. Time without a span counts with the mean power of the spans.

    Raises:
        EnergyError: the spans cover too little of the window.
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
    """The readings that a sampler has collected.

    Attributes:
        counter: the sensor's function for the difference of two readings; None if the readings are watts.
        samples: (seconds, reading).
        dropped: times of readings that failed.
        polled: (seconds, result of the poll).
    """

    counter: Optional[Callable[[Any, Any], Optional[float]]]
    samples: List[Tuple[float, Any]]
    dropped: List[float]
    polled: List[Tuple[float, Any]]

    def trial(self, start_s: float, end_s: float, runs: int, hottest: Sequence[Any] = ()) -> Trial:
        """The result of one window.

        Args:
            start_s: start of the window.
            end_s: end of the window.
            runs: number of inferences in the window.
            hottest: (seconds, degrees Celsius or None) of the hottest zone.

        Raises:
            EnergyError: the energy cannot be computed from the readings.
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
        """The power over time, the energy of the window, and the number of discarded intervals."""
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
    """Power over time in few points: means of groups of readings, each with the last known temperature."""
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
    """The record of energy that could not be measured, with the reason."""
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
    """The record of the energy of one inference, from windows of many inferences.

    `above_idle_j` is None if the energy cannot be distinguished from idle (above-idle energy below three
    standard deviations of the idle energy of the windows) or if no idle power is known. `reason` says which.

    Args:
        description: description of the sensor.
        trials: at least one window.
        idle: power without work; None if it was not taken.
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
