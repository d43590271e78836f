"""Times, energy and the device's state of one measurement, all on the device's own clock."""

from __future__ import annotations

import collections
import math
import time
from typing import Any, Callable, Deque, Dict, List, Mapping, NamedTuple, Optional, Sequence

from device_agent.board.machine import Machine
from device_agent.contract.fields import Fields
from device_agent.contract.limits import LIMITS
from device_agent.contract.text import printable
from device_agent.measure import energy
from device_agent.measure.meter import PowerMeter
from device_agent.measure.meter_client import MeterLost
from device_agent.power.none import NoSensor
from device_agent.wire.frames import AgentError

# Warm-up goes on, up to so many times its length, while the median of so many runs still falls by more than
# this.
_STABLE_RUNS = 3
_STABLE_WITHIN = 0.05
_STABLE_SHARE = 4.0


class Plan(NamedTuple):
    """How long and how often to run.

    Attributes:
        warmup_s: run unmeasured for at least this long.
        warmup_runs: and at least so often.
        min_repeats: samples to take at least, unless `max_time_s` ends it.
        max_repeats: samples to take at most in a window, unless energy needs a longer one.
        min_time_s: sample for at least this long.
        max_time_s: stop after this long whatever the number of samples (one at least is taken).
        min_sample_s: repeat a shorter run within one sample until it lasts as long.
        idle_s: seconds without work for the idle power, once a session, where energy is measured.
        energy: whether to measure energy.
        energy_s: where a sensor is read, length of a window at least.
        energy_updates: readings of the sensor in a window, at least.
        trials: windows of energy, with cooling down in between.
        cool_c: degrees above the start within which the hottest zone has to be before a further window.
        cool_s: longest time to wait for that.
        retries: how often a window in which the board throttled is measured again, after cooling.
        start_c: temperature to begin windows of energy at, 0 for the present one.
    """

    warmup_s: float = 0.5
    warmup_runs: int = 3
    min_repeats: int = 20
    max_repeats: int = 5000
    min_time_s: float = 1.0
    max_time_s: float = 60.0
    min_sample_s: float = 0.0005
    idle_s: float = 10.0
    energy: bool = True
    energy_s: float = 10.0
    energy_updates: int = 50
    trials: int = 3
    cool_c: float = 2.0
    cool_s: float = 120.0
    retries: int = 2
    start_c: float = 0.0


def plan_of(fields: Mapping[str, Any]) -> Plan:
    """A plan from the fields of a request.

    Raises:
        AgentError: a field is unknown, no number, or out of its range.
    """
    unknown = sorted(set(fields) - set(Plan._fields))
    if unknown:
        names = printable(", ".join(unknown))
        raise AgentError("bad_request", "unknown fields of a measurement: %s" % names)
    given = Fields(fields, lambda text: AgentError("bad_request", "a field of the measurement: %s" % text))
    plan = Plan(**{name: _checked(given, name, value) for name, value in Plan()._asdict().items()})
    if plan.min_repeats < 1 or plan.max_repeats < plan.min_repeats or plan.max_time_s <= 0:
        raise AgentError("bad_request", "a measurement needs at least one sample and some time: %s" % (plan,))
    if plan.trials < 1 or plan.retries < 0 or plan.energy_updates < 0:
        raise AgentError("bad_request", "a measurement needs at least one window of energy: %s" % (plan,))
    return plan


def _checked(given: Fields, name: str, standard: Any) -> Any:
    if isinstance(standard, bool):
        return given.truth(name, standard)
    if isinstance(standard, int):
        return given.whole(name, 0, LIMITS.wire.runs, standard)
    return given.seconds(name, standard)


class Meter:
    """Measures calls on this machine.

    Args:
        machine: whose state is recorded.
        power_meter: a PowerMeter, in this process or in one of its own.
        threads: threads that the calls use, for the record.
    """

    def __init__(self, machine: Machine, power_meter: Any, threads: int) -> None:
        self._power = power_meter
        # Without energy there is nothing to sample, and throttling is seen as well from here.
        self._plain = PowerMeter(machine, NoSensor("not asked for"))
        self._threads = threads
        self._unavailable: Optional[str] = None
        self._probed = False
        self._idle_taken = False

    def measure(self, call: Callable[[], Any], plan: Plan) -> Dict[str, Any]:
        """Runs `call` as planned; `call` returns when its work is done, on a GPU too.

        Returns:
            `times_s` (seconds of one run, a sample each), `number` (runs in a sample), `energy` of one run,
            `state_before`, `state_after`, `throttled`, `throttle_reasons`, `invalid`, `conditions`,
            `threads`.
        """
        reason = self._no_energy(plan) if plan.energy else "not asked for"
        if reason is None:
            try:
                return self._windows(self._power, call, plan)
            except MeterLost as error:
                reason = self._unavailable = str(error)
                self._power.close()
        result = self._windows(self._plain, call, plan._replace(energy=False))
        return dict(result, energy=energy.unavailable(str(reason)))

    def _no_energy(self, plan: Plan) -> Optional[str]:
        """Why energy cannot be measured, else None; takes the idle power the first time."""
        try:
            if not self._probed:
                self._probed = True
                self._unavailable = self._power.probe()["unavailable"]
                if self._unavailable is not None:
                    self._power.close()
            if self._unavailable is None and not self._idle_taken and plan.idle_s > 0:
                self._idle_taken = self._power.idle(plan.idle_s)["mean_w"] is not None
        except MeterLost as error:
            self._unavailable = str(error)
        return self._unavailable

    def _windows(self, meter: Any, call: Callable[[], Any], plan: Plan) -> Dict[str, Any]:
        times: List[float] = []
        terms: Optional[Dict[str, Any]] = plan._asdict()
        while True:
            # Sampling begins with the warm-up: the window's first edge has a reading under load before it.
            begun = meter.begin(terms)
            terms = None
            number = _warm_up(call, plan)
            start_s = time.monotonic()
            window = _sample(call, plan, number, float(begun["window_s"]))
            answer = meter.end(start_s, time.monotonic(), len(window) * number)
            if answer.pop("keep"):
                times += window
            if not answer.pop("again"):
                return dict(answer, times_s=times, number=number, threads=self._threads)


def _warm_up(call: Callable[[], Any], plan: Plan) -> int:
    """Runs until enough was run and the times no longer fall; how many runs make a sample."""
    clock = time.perf_counter
    started = clock()
    runs = 0
    shortest = math.inf
    recent: Deque[float] = collections.deque(maxlen=2 * _STABLE_RUNS)
    while True:
        begin = clock()
        call()
        end = clock()
        runs += 1
        shortest = min(shortest, end - begin)
        recent.append(end - begin)
        spent = end - started
        enough = runs >= plan.warmup_runs and spent >= plan.warmup_s
        unstable = _falling(recent) and spent < _STABLE_SHARE * plan.warmup_s
        if (enough and not unstable) or spent > plan.max_time_s:
            return max(1, math.ceil(plan.min_sample_s / max(shortest, 1e-9)))


def _falling(recent: Sequence[float]) -> bool:
    """Whether the later half of the latest runs is clearly faster than the half before it, or may be."""
    if len(recent) < 2 * _STABLE_RUNS:
        return True
    times = list(recent)
    earlier, later = sorted(times[:_STABLE_RUNS]), sorted(times[_STABLE_RUNS:])
    return later[_STABLE_RUNS // 2] < (1.0 - _STABLE_WITHIN) * earlier[_STABLE_RUNS // 2]


def _sample(call: Callable[[], Any], plan: Plan, number: int, window_s: float) -> List[float]:
    clock = time.perf_counter
    times: List[float] = []
    started = clock()
    inner = range(number)
    least_s = max(plan.min_time_s, window_s)
    while True:
        begin = clock()
        for _ in inner:
            call()
        end = clock()
        times.append((end - begin) / number)
        spent = end - started
        if spent >= max(plan.max_time_s, window_s):
            return times
        # A window of energy has its length whatever the number of samples.
        if spent >= window_s and len(times) >= plan.max_repeats:
            return times
        if len(times) >= plan.min_repeats and spent >= least_s:
            return times
