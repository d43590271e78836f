"""Time, power and heat of a simulated board, and the files in which its sensors show them."""

from __future__ import annotations

import math
import os
import random
import time
from typing import Callable, List, Optional, Tuple

from device_agent.simulation.scenario import Program, Scenario

POWER_FILE = "sys/class/hwmon/hwmon0/power1_input"
ZONE_FILE = "sys/class/thermal/thermal_zone0/temp"
THROTTLE_FILE = "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count"
POLICY = "sys/devices/system/cpu/cpufreq/policy0"
_POLICY_FILES = ("scaling_governor", "scaling_min_freq", "scaling_max_freq")
# Temperature and throttling are looked at so often while time passes.
_STEP_S = 0.05


class SimulatedBoard:
    """One board. Time passes only in calls of its methods.

    Args:
        scenario: what it is like.
        root: folder of its /proc and /sys, written here.
        shared: folder whose governor and limits of the clock hold; the agent changes them there.
        threads: that the work uses.
    """

    def __init__(self, scenario: Scenario, root: str, shared: str, threads: int) -> None:
        self.scenario = scenario
        self._root = root
        self._shared = shared
        self._share = min(1.0, threads / scenario.cores)
        self._random = random.Random(scenario.seed)
        self._now_s = time.monotonic()
        self.throttled = False
        self.throttle_count = 0
        # Total energy since the start, the truth that a measurement is held against.
        self.joules = 0.0
        self._speed = 1.0
        self.temperature_c = self._target_c(scenario.idle_w)
        self._watchers: List[Tuple[float, Callable[[], None]]] = []
        self._working = False
        # Cores that the present work keeps busy, and its joules beside theirs for a second at full clock.
        self._program: Optional[Tuple[float, float]] = None
        self.publish()

    # -- the clock, with the names of the module `time`

    def monotonic(self) -> float:
        """Seconds of the simulated clock."""
        return self._now_s

    def perf_counter(self) -> float:
        """Seconds of the simulated clock."""
        return self._now_s

    def time(self) -> float:
        """Seconds since the epoch: nothing is measured by it."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Advances the simulated time without work."""
        self._pass(max(0.0, seconds), working=False)

    # -- work

    def work(self, seconds: float, program: Optional[Program] = None) -> None:
        """Simulates work that takes `seconds` at full clock and without throttling.

        Args:
            seconds: of the work.
            program: what it does; None for work of which only the time is known.
        """
        self._program = self._dynamic(seconds, program)
        jitter = math.exp(self._random.gauss(0.0, self.scenario.spread)) if self.scenario.spread else 1.0
        left = seconds * jitter
        while left > 0:
            speed = self.speed
            step = min(left / speed, _STEP_S)
            self._pass(step, working=True)
            left -= step * speed
            if left < 1e-12:
                return

    def _dynamic(self, seconds: float, program: Optional[Program]) -> Optional[Tuple[float, float]]:
        scenario = self.scenario
        if program is None or not scenario.knows_programs or seconds <= 0.0:
            return None
        joules = program.multiply_adds * scenario.multiply_add_j + program.bytes * scenario.byte_j
        return min(program.cores, float(scenario.cores)), joules / seconds

    @property
    def speed(self) -> float:
        """Share of the full clock at this moment."""
        return self._speed * (self.scenario.thermal.throttled_speed if self.throttled else 1.0)

    def watts(self, working: bool) -> float:
        """The true power of the board in watts, while it works or is idle."""
        scenario = self.scenario
        if not working:
            return scenario.idle_w
        if self._program is not None:
            cores, rate_w = self._program
            # What a call moves and multiplies takes the same energy at any clock.
            return float(
                scenario.idle_w
                + cores * scenario.core_w * self.speed**scenario.exponent
                + rate_w * self.speed
            )
        dynamic = (scenario.active_w - scenario.idle_w) * self._share
        return float(scenario.idle_w + dynamic * self.speed**scenario.exponent)

    def watch(self, period_s: float, action: Callable[[], None]) -> Callable[[], None]:
        """Calls an action every so many seconds of simulated time; returns a function that ends this."""
        entry = [self._now_s + period_s]

        def due() -> None:
            while entry and entry[0] <= self._now_s + 1e-12:
                entry[0] += period_s
                action()

        watcher = (period_s, due)
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)

    def _pass(self, seconds: float, working: bool) -> None:
        end_s = self._now_s + seconds
        shortest = min([_STEP_S, *(period_s for period_s, _ in self._watchers)])
        while self._now_s < end_s:
            step = min(shortest, end_s - self._now_s)
            self._working = working
            watts = self.watts(working)
            self.joules += watts * step
            # The exact solution for a constant power.
            target = self._target_c(watts)
            decay = math.exp(-step / self.scenario.thermal.time_constant_s)
            self.temperature_c = target + (self.temperature_c - target) * decay
            self._now_s = end_s if step >= end_s - self._now_s else self._now_s + step
            self._limit()
            for _, due in list(self._watchers):
                due()
        # A reading after the window's edge is one of rest unless work goes on.
        self._working = working

    def _target_c(self, watts: float) -> float:
        thermal = self.scenario.thermal
        return thermal.ambient_c + thermal.resistance_c_per_w * watts

    def _limit(self) -> None:
        thermal = self.scenario.thermal
        if not self.throttled and self.temperature_c >= thermal.limit_c:
            self.throttled = True
            self.throttle_count += 1
        elif self.throttled and self.temperature_c <= thermal.recover_c:
            self.throttled = False

    # -- what the agent sees

    def publish(self) -> None:
        """Writes what the sensors would show at this moment, and takes over the clock's limits."""
        self._read_clock()
        watts = self.watts(self._working) + self._random.gauss(0.0, self.scenario.noise_w)
        _write(self._root, POWER_FILE, "%d\n" % max(0, round(watts * 1e6)))
        _write(self._root, ZONE_FILE, "%d\n" % round(self.temperature_c * 1000))
        _write(self._root, THROTTLE_FILE, "%d\n" % self.throttle_count)

    def _read_clock(self) -> None:
        values = {name: _read(self._shared, "%s/%s" % (POLICY, name)) for name in _POLICY_FILES}
        highest = _read(self._shared, POLICY + "/cpuinfo_max_freq")
        if not highest or not all(values.values()):
            return
        slow = values["scaling_governor"] == "powersave"
        limit = values["scaling_min_freq" if slow else "scaling_max_freq"]
        self._speed = int(limit) / int(highest)
        for name, value in values.items():
            _write(self._root, "%s/%s" % (POLICY, name), value + "\n")
        _write(self._root, POLICY + "/scaling_cur_freq", "%d\n" % (int(highest) * self.speed))


def _write(root: str, name: str, text: str) -> None:
    path = os.path.join(root, name)
    # In place, as in sysfs: whoever has the file open reads the new value.
    with open(path, "r+" if os.path.exists(path) else "w", encoding="ascii") as file:
        file.write(text)
        file.truncate()


def _read(root: str, name: str) -> str:
    try:
        with open(os.path.join(root, name), encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
