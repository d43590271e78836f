"""Times, energy and the device's state of one measurement, all on the device's own clock."""

from __future__ import annotations

import math
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from device_agent import energy
from device_agent.machine import Machine
from device_agent.wire import AgentError


class Plan(NamedTuple):
    """How long and how often to run.

    Attributes:
        warmup_s: run unmeasured for at least this long.
        warmup_runs: and at least so often.
        min_repeats: samples to take at least, unless `max_time_s` ends it.
        max_repeats: samples to take at most.
        min_time_s: sample for at least this long.
        max_time_s: stop after this long whatever the number of samples (one at least is taken).
        min_sample_s: repeat a shorter run within one sample until it lasts as long.
        idle_s: seconds without work for the idle power, once a session, where energy is measured.
        energy: whether to measure energy.
        energy_s: where a sensor is read, sample for at least this long.
    """

    warmup_s: float = 0.5
    warmup_runs: int = 3
    min_repeats: int = 20
    max_repeats: int = 5000
    min_time_s: float = 1.0
    max_time_s: float = 60.0
    min_sample_s: float = 0.0005
    idle_s: float = 5.0
    energy: bool = True
    energy_s: float = 5.0


def plan_of(fields: Dict[str, Any]) -> Plan:
    """A plan from the fields of a request.

    Raises:
        AgentError: a field is unknown or no number.
    """
    unknown = set(fields) - set(Plan._fields)
    if unknown:
        raise AgentError("bad_request", "unknown fields of a measurement: %s" % ", ".join(sorted(unknown)))
    try:
        plan = Plan(**{name: type(getattr(Plan(), name))(value) for name, value in fields.items()})
    except (TypeError, ValueError) as error:
        raise AgentError("bad_request", "a field of the measurement is no number: %s" % error) from error
    if plan.min_repeats < 1 or plan.max_repeats < plan.min_repeats or plan.max_time_s <= 0:
        raise AgentError("bad_request", "a measurement needs at least one sample and some time: %s" % (plan,))
    return plan


class Meter:
    """Measures calls on this machine.

    Args:
        machine: whose state is recorded.
        sensor: of `device_agent.power`.
        threads: threads that the calls use, for the record.
    """

    def __init__(self, machine: Machine, sensor: Any, threads: int) -> None:
        self._machine = machine
        self._sensor = sensor
        self._threads = threads
        self._idle: Optional[energy.Idle] = None

    def measure(self, call: Callable[[], Any], plan: Plan) -> Dict[str, Any]:
        """Runs `call` as planned.

        Returns:
            `times_s` (seconds of one run, a sample each), `number` (runs in a sample), `energy` of one run,
            `state_before`, `state_after`, `threads`.
        """
        reason = self._sensor.probe() if plan.energy else "not asked for"
        if reason is None and self._idle is None and plan.idle_s > 0:
            self._idle = energy.idle_power(self._sensor, plan.idle_s)
        if reason is None:
            plan = plan._replace(min_time_s=max(plan.min_time_s, plan.energy_s))
        number = _warm_up(call, plan)
        before = self._machine.state()
        window = energy.Window(self._sensor) if reason is None else None
        if window:
            window.start()
        times = _sample(call, plan, number)
        if window:
            window.stop()
        record = (
            energy.record(self._sensor, window, len(times) * number, self._idle)
            if window
            else energy.unavailable(str(reason))
        )
        return {
            "times_s": times,
            "number": number,
            "energy": record,
            "state_before": before,
            "state_after": self._machine.state(),
            "threads": self._threads,
        }


def _warm_up(call: Callable[[], Any], plan: Plan) -> int:
    clock = time.perf_counter
    started = clock()
    runs = 0
    shortest = math.inf
    while True:
        begin = clock()
        call()
        end = clock()
        runs += 1
        shortest = min(shortest, end - begin)
        enough = runs >= plan.warmup_runs and end - started >= plan.warmup_s
        if enough or end - started > plan.max_time_s:
            return max(1, math.ceil(plan.min_sample_s / max(shortest, 1e-9)))


def _sample(call: Callable[[], Any], plan: Plan, number: int) -> List[float]:
    clock = time.perf_counter
    times: List[float] = []
    started = clock()
    inner = range(number)
    while True:
        begin = clock()
        for _ in inner:
            call()
        end = clock()
        times.append((end - begin) / number)
        spent = end - started
        if len(times) >= plan.max_repeats or spent >= plan.max_time_s:
            return times
        if len(times) >= plan.min_repeats and spent >= plan.min_time_s:
            return times
