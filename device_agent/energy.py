"""Joules of a window of work, from a sensor of energy counters or of power.

A background thread reads the sensor with the device's monotonic clock, stamping each reading at the
midpoint of its read. Counters are summed by differences (one wrap per interval is recovered), power is
integrated by the trapezoid rule with the readings interpolated at the edges of the window.
"""

from __future__ import annotations

import math
import threading
import time
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

# Readings that may fail before a window counts as unusable.
_MAX_DROPPED_SHARE = 0.05


class Idle(NamedTuple):
    """Power without work: mean and standard deviation, watts."""

    mean_w: float
    std_w: float


def trapezoid_joules(samples: Sequence[Tuple[float, float]], start_s: float, end_s: float) -> float:
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
    times = [start_s] + [t for t, _ in samples if start_s < t < end_s] + [end_s]
    points = [(t, _interpolate(samples, t)) for t in times]
    return math.fsum((p0 + p1) / 2.0 * (t1 - t0) for (t0, p0), (t1, p1) in zip(points, points[1:]))


def _interpolate(samples: Sequence[Tuple[float, float]], at_s: float) -> float:
    if at_s <= samples[0][0]:
        return samples[0][1]
    for (t0, p0), (t1, p1) in zip(samples, samples[1:]):
        if t0 <= at_s <= t1:
            return p0 if t1 == t0 else p0 + (p1 - p0) * (at_s - t0) / (t1 - t0)
    return samples[-1][1]


class Window:
    """Energy between `start` and `stop`, sampled by a thread of its own.

    Args:
        sensor: one of `device_agent.power`, already probed and available.
    """

    def __init__(self, sensor: Any) -> None:
        self._sensor = sensor
        self._counter = sensor.describe()["quantity"] == "energy"
        self._samples: List[Tuple[float, Any]] = []
        self._dropped = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="energy", daemon=True)

    def start(self) -> None:
        """Takes the first reading and begins sampling."""
        self._take()
        self._start_s = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """Takes the last reading and ends sampling."""
        self._end_s = time.monotonic()
        self._done.set()
        self._thread.join()
        self._take()

    def _sample(self) -> None:
        while not self._done.wait(self._sensor.period_s):
            self._take()

    def _take(self) -> None:
        before = time.monotonic()
        try:
            reading = self._sensor.read()
        except (OSError, ValueError):
            self._dropped += 1
            return
        self._samples.append(((before + time.monotonic()) / 2.0, reading))

    @property
    def seconds(self) -> float:
        """Length of the window."""
        return self._end_s - self._start_s

    def joules(self) -> Optional[float]:
        """Energy of the window, None where too many readings failed."""
        if len(self._samples) < 2 or self._dropped > _MAX_DROPPED_SHARE * len(self._samples):
            return None
        if not self._counter:
            return trapezoid_joules(self._samples, self._start_s, self._end_s)
        pairs = zip(self._samples, self._samples[1:])
        total = math.fsum(self._sensor.joules(old, new) for (_, old), (_, new) in pairs)
        # The counters' own span is longer than the window by the time of a read.
        span = self._samples[-1][0] - self._samples[0][0]
        return total * self.seconds / span if span > 0 else None

    @property
    def evidence(self) -> Dict[str, Any]:
        """How many readings the result rests on."""
        return {"n_samples": len(self._samples), "n_dropped": self._dropped, "duration_s": self.seconds}


def idle_power(sensor: Any, seconds: float, parts: int = 5) -> Optional[Idle]:
    """Power of the device without work, or None where it cannot be read.

    Args:
        sensor: an available sensor.
        seconds: how long to wait in all.
        parts: windows from which the spread is taken.
    """
    watts = []
    for _ in range(parts):
        window = Window(sensor)
        window.start()
        time.sleep(seconds / parts)
        window.stop()
        joules = window.joules()
        if joules is None:
            return None
        watts.append(joules / window.seconds)
    mean = math.fsum(watts) / parts
    return Idle(mean, math.sqrt(math.fsum((w - mean) ** 2 for w in watts) / (parts - 1)))


def unavailable(reason: str) -> Dict[str, Any]:
    """The record of energy that could not be measured."""
    return {"kind": "unavailable", "gross_j": None, "above_idle_j": None, "source": reason, "boundary": ""}


def record(sensor: Any, window: Window, runs: int, idle: Optional[Idle]) -> Dict[str, Any]:
    """Energy of one run out of a window of many.

    `above_idle_j` is None where it is not distinguishable from idle (below three standard deviations of
    the idle energy of the window) or where no idle power is known; `reason` says which.
    """
    joules = window.joules()
    if joules is None or runs < 1:
        return unavailable("too many readings of the sensor failed")
    description = sensor.describe()
    result: Dict[str, Any] = {
        "kind": "measured",
        "gross_j": joules / runs,
        "above_idle_j": None,
        "source": "%s (%s)" % (description["source"], ", ".join(description["rails"])),
        "boundary": description["boundary"],
        "mean_w": joules / window.seconds,
        "idle_w": idle.mean_w if idle else None,
        "idle_std_w": idle.std_w if idle else None,
        "n_inferences": runs,
    }
    result.update(window.evidence)
    if idle is None:
        result["reason"] = "no idle power was taken"
        return result
    above = joules - idle.mean_w * window.seconds
    if above <= 3.0 * idle.std_w * window.seconds:
        result["reason"] = "not distinguishable from idle"
        return result
    result["above_idle_j"] = above / runs
    return result
