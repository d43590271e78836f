"""Measures energy by the protocol: idle power, windows in trials, throttling, cooling between windows.

An executor only runs the model and reports the times of its windows. Everything else is decided here.
`PowerMeter` measures in the calling process. `python -m device_agent.measure.meter --system-root R [--board
board.json]` runs it in a separate process, so that sampling does not disturb the executor's interpreter. The
process reads JSON objects from stdin, one a line, and writes an answer to each to stdout (docs/power.md, "The
meter process"). It ends when its stdin is closed.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import sys
import time
from typing import Any, Callable, Dict, List, Mapping, Optional

from device_agent import power
from device_agent.board.machine import Machine
from device_agent.board.throttle import Verdict, slowed_now, verdict
from device_agent.contract.measuring import Plan
from device_agent.measure import energy, sampling
from device_agent.power.none import NoSensor

_COOLING_POLL_S = 0.5


class _Series:
    """The windows of one measurement so far."""

    def __init__(self, plan: Plan, start_c: Optional[float]) -> None:
        self.plan = plan
        self.start_c = start_c
        self.trials: List[energy.Trial] = []
        self.windows = 0
        self.retries = 0
        self.again = False
        self.cooldown_s = 0.0
        self.cooldown_timeouts = 0
        self.before: Dict[str, Any] = {}
        self.first_before: Dict[str, Any] = {}
        self.power_mode: Optional[str] = None

    @property
    def conditions(self) -> Dict[str, Any]:
        """The conditions of the measurement, for the record."""
        return {
            "windows": self.windows,
            "retries": self.retries,
            "retry_limit": self.plan.retries,
            "cooldown_s": round(self.cooldown_s, 3),
            "cooldown_timeouts": self.cooldown_timeouts,
            "cooldown_limit_s": self.plan.cool_s,
            "start_c": self.start_c,
            **({"power_mode": self.power_mode} if self.power_mode else {}),
        }


class PowerMeter:
    """Measures the windows of one executor.

    Args:
        machine: machine whose temperatures and throttling are read.
        sensor: sensor from `device_agent.power`.
        sleep: waits for some seconds; may raise an exception to end the process.
    """

    def __init__(self, machine: Machine, sensor: Any, sleep: Callable[[float], None] = time.sleep) -> None:
        self._machine = machine
        self._sensor = sensor
        self._sleep = sleep
        self._unavailable: Optional[str] = None
        self._probed = False
        self._idle: Optional[energy.Idle] = None
        self._coolest_c: Optional[float] = None
        self._series: Optional[_Series] = None
        self._sampler: Optional[sampling.Sampler] = None

    def probe(self) -> Dict[str, Any]:
        """Probes the sensor: `unavailable` (the reason, or None) and `description`."""
        self._unavailable = self._sensor.probe()
        self._probed = True
        return {"unavailable": self._unavailable, "description": self._sensor.describe()}

    def state(self) -> Dict[str, Any]:
        """The state of the machine; see Machine."""
        return self._machine.state()

    def idle(self, seconds: float) -> Dict[str, Any]:
        """Measures the power without work, for the windows that follow.

        Returns:
            `mean_w` and `std_w`. If they cannot be measured, both are None and `reason` says why.
        """
        try:
            self._idle = sampling.idle_power(self._sensor, seconds, self._sleep)
        except energy.EnergyError as error:
            return {"mean_w": None, "std_w": None, "reason": str(error)}
        self._note_temperature()
        return self._idle._asdict()

    def begin(self, plan: Optional[Mapping[str, Any]] = None) -> Dict[str, Any]:
        """Prepares a window, before its warm-up: cools down if necessary, then starts sampling.

        Args:
            plan: fields of a `Plan`; others are ignored. A plan begins a new measurement. None continues the
                present measurement, or begins one with a single window.

        Returns:
            `time_s` (now) and `window_s` (minimum length of the window).
        """
        series = self._series
        if plan is not None or series is None:
            known = {name: plan[name] for name in Plan._fields if plan and name in plan}
            series = self._series = _Series(Plan(trials=1)._replace(**known), self._note_temperature())
            if series.plan.start_c > 0:
                series.start_c = series.plan.start_c
                self._cool(series, series.start_c)
        elif series.start_c is not None:
            # After throttling, the start temperature is not low enough: the board may have been hot then.
            cool = min(series.start_c, self._coolest_c or series.start_c) if series.again else series.start_c
            self._cool(series, cool)
        series.before = self._machine.state()
        series.first_before = series.first_before or series.before
        window_s = 0.0
        if self._measures(series):
            series.power_mode = self._machine.power_mode()
            self._sampler = sampling.Sampler(self._sensor, self._poll)
            self._sampler.start()
            wanted_s = max(series.plan.energy_s, series.plan.energy_updates * self._sensor.period_s)
            window_s = min(wanted_s, series.plan.energy_most_s)
        return {"time_s": time.monotonic(), "window_s": window_s}

    def _measures(self, series: _Series) -> bool:
        if series.plan.energy and not self._probed:
            self.probe()
        return series.plan.energy and self._unavailable is None

    def _poll(self) -> Any:
        return self._machine.throttle.flags(), self._machine.hottest_c()

    def _note_temperature(self) -> Optional[float]:
        hottest = self._machine.hottest_c()
        if hottest is not None:
            self._coolest_c = min(hottest, self._coolest_c or hottest)
        return hottest

    def _cool(self, series: _Series, start_c: float) -> None:
        """Waits until the hottest zone is near the start temperature and no clock is held down."""
        began = time.monotonic()
        while True:
            hottest = self._machine.hottest_c()
            hot = hottest is not None and hottest > start_c + series.plan.cool_c
            if not hot and not slowed_now(self._machine.throttle.flags()):
                break
            if time.monotonic() - began >= series.plan.cool_s:
                series.cooldown_timeouts += 1
                break
            self._sleep(_COOLING_POLL_S)
        series.cooldown_s += time.monotonic() - began

    def end(self, start_s: float, end_s: float, runs: int) -> Dict[str, Any]:
        """Ends a window.

        Args:
            start_s: start of the window, CLOCK_MONOTONIC.
            end_s: end of the window.
            runs: number of inferences in the window.

        Returns:
            `energy` (the record of all windows so far), `keep` (whether the window's times count), `again`
            (whether another window is wanted), `state_before`, `state_after`, `throttled`,
            `throttle_reasons`, `invalid`, `conditions`.

        Raises:
            ValueError: no window was begun.
        """
        series = self._series
        if series is None:
            raise ValueError("no window was begun")
        readings = self._sampler.stop(end_s) if self._sampler else None
        self._sampler = None
        series.windows += 1
        after = self._machine.state()
        polled = [flags for _, (flags, _) in readings.polled] if readings else []
        found = verdict(series.before.get("throttle", {}), polled, after.get("throttle", {}))
        # A measurement with a weak supply is not repeated, because the supply stays weak.
        series.again = found.throttled and not found.invalid and series.retries < series.plan.retries
        record = self._record(series, readings, start_s, end_s, runs) if not series.again else {}
        more = bool(series.trials) and len(series.trials) < series.plan.trials and not found.throttled
        if series.again:
            series.retries += 1
            record = energy.unavailable("the board throttled; it is measured again")
        elif not more:
            self._series = None
        return self._answer(series, record, found, after, more or series.again)

    def _record(
        self,
        series: _Series,
        readings: Optional[energy.Readings],
        start_s: float,
        end_s: float,
        runs: int,
    ) -> Dict[str, Any]:
        if readings is None:
            reason = self._unavailable if series.plan.energy else "not asked for"
            return energy.unavailable(str(reason))
        hottest = [(at_s, temperature) for at_s, (_, temperature) in readings.polled]
        try:
            series.trials.append(readings.trial(start_s, end_s, runs, hottest))
        except energy.EnergyError as error:
            # One window is missing, so the others are dropped too: they must not be taken for all windows.
            series.trials.clear()
            return energy.unavailable(str(error))
        return energy.record(self._sensor.describe(), series.trials, self._idle)

    def _answer(
        self, series: _Series, record: Dict[str, Any], found: Verdict, after: Dict[str, Any], more: bool
    ) -> Dict[str, Any]:
        return {
            "energy": record,
            "keep": not series.again,
            "again": more,
            "state_before": series.first_before,
            "state_after": after,
            "throttled": found.throttled,
            "throttle_reasons": list(found.reasons),
            "invalid": found.invalid,
            "conditions": series.conditions,
        }

    def close(self) -> None:
        """Closes the sensor."""
        self._sensor.close()


class _ParentEnded(Exception):
    """The process that asks has ended."""


class _Lines:
    """Reads lines from a descriptor, and waits in a way that ends when the descriptor is closed."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._pending = b""

    def next(self) -> Optional[bytes]:
        """The next line; None at the end."""
        while b"\n" not in self._pending:
            data = os.read(self._descriptor, 65536)
            if not data:
                return None
            self._pending += data
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def sleep(self, seconds: float) -> None:
        """Waits for some seconds.

        Raises:
            _ParentEnded: the other side closed its end meanwhile.
        """
        until = time.monotonic() + seconds
        while True:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self._descriptor], [], [], left)[0]:
                return
            data = os.read(self._descriptor, 65536)
            if not data:
                raise _ParentEnded
            self._pending += data


def serve(meter: PowerMeter, lines: Any, answer: Callable[[Dict[str, Any]], None]) -> None:
    """Answers requests until there are no more.

    Args:
        meter: does the work.
        lines: object whose `next` returns a line or None.
        answer: sends an object.
    """
    actions: Dict[str, Callable[[Dict[str, Any]], Dict[str, Any]]] = {
        "probe": lambda fields: meter.probe(),
        "state": lambda fields: meter.state(),
        "idle": lambda fields: meter.idle(float(fields["seconds"])),
        "begin": lambda fields: meter.begin(fields.get("plan")),
        "end": lambda fields: meter.end(
            float(fields["start_s"]), float(fields["end_s"]), int(fields["runs"])
        ),
    }
    while True:
        line = lines.next()
        if line is None:
            return
        try:
            fields = json.loads(line.decode())
            action = actions.get(str(fields.get("do")))
            if action is None:
                answer({"error": "unknown request %s" % fields.get("do")})
            else:
                answer(action(fields))
        except (AttributeError, KeyError, OSError, TypeError, ValueError) as error:
            answer({"error": "%s: %s" % (type(error).__name__, error)})


def main(arguments: Optional[List[str]] = None) -> int:
    """Runs the meter process; see the module."""
    parser = argparse.ArgumentParser(prog="device_agent.measure.meter", description="Measures energy.")
    parser.add_argument("--system-root", default="/", help="prefix of /proc and /sys")
    parser.add_argument("--board", default=None, help="facts of the board, board.json")
    options = parser.parse_args(arguments)
    # Programs that are started here may print, so the pipe for the answers is moved to another descriptor.
    output = os.dup(1)
    os.dup2(2, 1)
    lines = _Lines(0)
    try:
        sensor = power.choose(options.system_root, power.board_facts(options.board))
    except ValueError as error:
        sensor = NoSensor(str(error))
    meter = PowerMeter(Machine(options.system_root), sensor, lines.sleep)

    def answer(fields: Dict[str, Any]) -> None:
        os.write(output, (json.dumps(fields) + "\n").encode())

    try:
        serve(meter, lines, answer)
    except (_ParentEnded, BrokenPipeError):
        pass  # the executor ended, so this process ends too
    finally:
        meter.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
