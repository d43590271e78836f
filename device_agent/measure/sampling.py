"""Reads a sensor in a thread while a model runs, and measures the power without work."""

from __future__ import annotations

import math
import threading
import time
from typing import Any, Callable, Optional

from device_agent.measure.energy import Idle, Readings, counter_joules, counter_spans, trapezoid_joules

_POLL_S = 1.0
_MIN_PARTS = 5


class Sampler:
    """A thread that reads a sensor until it is stopped.

    Args:
        sensor: sensor from `device_agent.power`, probed and available.
        poll: called every second in addition; its results are kept.
    """

    def __init__(self, sensor: Any, poll: Optional[Callable[[], Any]] = None) -> None:
        self._sensor = sensor
        self._poll = poll
        counter = sensor.joules if sensor.quantity == "energy" else None
        self._readings = Readings(counter, [], [], [])
        self._polled_s = -math.inf
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def start(self) -> None:
        """Takes the first reading and begins sampling."""
        if hasattr(self._sensor, "take"):
            # Earlier readings belong to another window.
            self._pushed()
            self._readings.samples.clear()
        self._take()
        self._thread.start()

    def stop(self, end_s: float) -> Readings:
        """Stops sampling once there is a reading after the end of the window, and returns the readings.

        Args:
            end_s: end of the window.
        """
        # A counter that changes rarely, or a meter that sends slowly, gets time for another reading.
        until = time.monotonic() + 2.0 * max(self._sensor.period_s, 0.1)
        while time.monotonic() < until and not self._passed(end_s):
            time.sleep(min(self._sensor.period_s, 0.02))
        self._done.set()
        self._thread.join()
        return self._readings

    def _passed(self, end_s: float) -> bool:
        samples = self._readings.samples
        if len(samples) < 2 or samples[-1][0] < end_s:
            return False
        if self._readings.counter is None:
            return True
        latest = samples[-1][1]
        # The counter's latest value must have appeared after the end.
        return next((at_s for at_s, value in reversed(samples) if value != latest), -math.inf) >= end_s

    def _run(self) -> None:
        due = time.monotonic()
        while True:
            # Missed readings are not made up for: a burst of them would only repeat one value many times.
            due = max(due + self._sensor.period_s, time.monotonic())
            if self._done.wait(due - time.monotonic()):
                return
            self._take()

    def _take(self) -> None:
        before = time.monotonic()
        try:
            if hasattr(self._sensor, "take"):
                self._pushed()
            else:
                reading = self._sensor.read()
                self._readings.samples.append(((before + time.monotonic()) / 2.0, reading))
        except (OSError, ValueError):
            self._readings.dropped.append(before)
        if self._poll is not None and before - self._polled_s >= _POLL_S:
            self._polled_s = before
            self._readings.polled.append((before, self._poll()))

    def _pushed(self) -> None:
        self._readings.samples.extend(self._sensor.take())


def idle_power(sensor: Any, seconds: float, sleep: Callable[[float], None] = time.sleep) -> Idle:
    """The device's power without work: mean, and standard deviation over parts of at most a second.

    Args:
        sensor: an available sensor.
        seconds: how long to measure.
        sleep: waits.

    Raises:
        EnergyError: the power cannot be read well enough.
    """
    sampler = Sampler(sensor)
    sampler.start()
    # Nothing is known before a counter first changes.
    sleep(3.0 * sensor.period_s)
    start_s = time.monotonic()
    sleep(seconds)
    end_s = time.monotonic()
    readings = sampler.stop(end_s)
    whole = readings.trial(start_s, end_s, 1)
    spans = readings.samples if readings.counter is None else None
    # Two parts alone can agree by chance, and any power would then seem to be above idle.
    parts = max(2, min(max(_MIN_PARTS, int(seconds)), whole.n_samples // 3))
    edges = [start_s + (end_s - start_s) * index / parts for index in range(parts + 1)]
    watts = []
    for begin, end in zip(edges, edges[1:]):
        if spans is not None:
            watts.append(trapezoid_joules(spans, begin, end) / (end - begin))
        else:
            known, _ = counter_spans(readings.samples, sensor.joules)
            watts.append(counter_joules(known, begin, end) / (end - begin))
    mean = whole.joules / whole.seconds
    return Idle(mean, math.sqrt(math.fsum((w - mean) ** 2 for w in watts) / (parts - 1)))
