"""Measures times, energy and the device's state, all with the clock of the device."""

from __future__ import annotations

import threading
import time
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple, TypeVar, Union

from device_agent.board.machine import Machine
from device_agent.contract.fields import Fields
from device_agent.contract.limits import LIMITS
from device_agent.contract.measuring import KernelPlan, Plan, VariantPlan
from device_agent.contract.text import printable
from device_agent.errors import AgentError
from device_agent.measure import energy
from device_agent.measure.meter import PowerMeter
from device_agent.measure.meter_client import MeterLost
from device_agent.measure.repeats import WarmUp, enough_samples
from device_agent.power.none import NoSensor

_AnyPlan = TypeVar("_AnyPlan", Plan, VariantPlan)


def plan_of(fields: Mapping[str, Any]) -> Plan:
    """Makes a plan from the fields of a request.

    Raises:
        AgentError: a field is unknown, is not a number, or is out of range.
    """
    plan = _filled(Plan(), fields)
    if plan.min_repeats < 1 or plan.max_repeats < plan.min_repeats or plan.max_time_s <= 0:
        raise AgentError("bad_request", "a measurement needs at least one sample and some time: %s" % (plan,))
    if plan.trials < 1 or plan.retries < 0 or plan.energy_updates < 0:
        raise AgentError("bad_request", "a measurement needs at least one window of energy: %s" % (plan,))
    return plan


def variant_plan_of(fields: Mapping[str, Any]) -> VariantPlan:
    """Makes the plan of variants of a model from the fields of a specification.

    Raises:
        AgentError: a field is unknown, is not a number, or is out of range.
    """
    plan = _filled(VariantPlan(), fields)
    if plan.runs < 1 or plan.slowest < 1:
        raise AgentError(
            "bad_request", "variants need at least one run, and a limit of at least 1: %s" % (plan,)
        )
    return plan


def _filled(standard: _AnyPlan, fields: Mapping[str, Any]) -> _AnyPlan:
    unknown = sorted(set(fields) - set(standard._fields))
    if unknown:
        names = printable(", ".join(unknown))
        raise AgentError("bad_request", "unknown fields of a measurement: %s" % names)
    given = Fields(fields, lambda text: AgentError("bad_request", "a field of the measurement: %s" % text))
    checked = {name: _checked(given, name, value) for name, value in standard._asdict().items()}
    return standard._replace(**checked)


def _checked(given: Fields, name: str, standard: Any) -> Any:
    if isinstance(standard, bool):
        return given.truth(name, standard)
    if isinstance(standard, int):
        return given.whole(name, 0, LIMITS.wire.runs, standard)
    return given.seconds(name, standard)


class Window(NamedTuple):
    """The samples between two times of CLOCK_MONOTONIC.

    Attributes:
        found: the times, in whatever form.
        start_s, end_s: the two moments.
        runs: number of inferences, or of calls of a kernel, in the window.
    """

    found: Any
    start_s: float
    end_s: float
    runs: int


def take_windows(
    power: Any, plan: Plan, take: Callable[[float], Window]
) -> Tuple[List[Window], Dict[str, Any]]:
    """Takes windows until the meter wants no more: as many as planned, and others for those that throttled.

    Args:
        power: a PowerMeter in this process, or a MeterProcess.
        plan: plan of the measurement.
        take: measures one window, of at least the given number of seconds.

    Returns:
        The windows that count; the meter's last answer without `keep` and `again`.
    """
    kept: List[Window] = []
    asked: Optional[Dict[str, Any]] = plan._asdict()
    while True:
        begun = power.begin(asked)
        asked = None
        window = take(float(begun["window_s"]))
        answer = power.end(window.start_s, window.end_s, window.runs)
        if answer.pop("keep"):
            kept.append(window)
        if not answer.pop("again"):
            return kept, answer


class TimeMeter:
    """Measures times without energy: one window, which is taken again where the board throttled.

    Args:
        machine: machine whose state is recorded.
        threads: number of threads that the measured code uses, for the record.
    """

    def __init__(self, machine: Machine, threads: int) -> None:
        self._power = PowerMeter(machine, NoSensor("not asked for"))
        self._threads = threads

    def measure(
        self, plan: Union[KernelPlan, VariantPlan], take: Callable[[float], Window]
    ) -> Tuple[Any, Dict[str, Any]]:
        """Takes the window.

        Returns:
            What was found in it; `state_before`, `state_after`, `threads`, `throttled`, `throttle_reasons`,
            `invalid`, `conditions`.
        """
        asked = Plan(energy=False, retries=plan.retries, cool_s=plan.cool_s)
        kept, answer = take_windows(self._power, asked, take)
        del answer["energy"]
        return kept[-1].found, dict(answer, threads=self._threads)


class Meter:
    """Measures calls on this machine.

    Args:
        machine: machine whose state is recorded.
        power_meter: a PowerMeter in this process, or a MeterProcess.
        threads: number of threads that the calls use, for the record.
    """

    def __init__(self, machine: Machine, power_meter: Any, threads: int) -> None:
        self._power = power_meter
        # For measurements without energy. It reads no sensor, and throttling can be read from here too.
        self._plain = PowerMeter(machine, NoSensor("not asked for"))
        self._threads = threads
        # The power meter knows one measurement at a time; kernels are measured by another thread than models.
        self._one = threading.Lock()
        self._unavailable: Optional[str] = None
        self._probed = False
        self._idle_taken = False

    def measure(self, call: Callable[[], Any], plan: Plan, together: int = 1) -> Dict[str, Any]:
        """Runs `call` as planned. `call` must return when its work is done, on a GPU too.

        Args:
            call: does what is measured.
            plan: of the measurement.
            together: how many runs one call makes.

        Returns:
            `times_s` (seconds of one run, for each sample), `number` (runs in a sample), `energy` of one run,
            `state_before`, `state_after`, `throttled`, `throttle_reasons`, `invalid`, `conditions`,
            `threads`.
        """
        with self._one:
            return self._measured(call, plan, together)

    def _measured(self, call: Callable[[], Any], plan: Plan, together: int) -> Dict[str, Any]:
        reason = self._no_energy(plan) if plan.energy else "not asked for"
        if reason is None:
            try:
                return self._windows(self._power, call, plan, together)
            except MeterLost as error:
                reason = self._unavailable = str(error)
                self._power.close()
        result = self._windows(self._plain, call, plan._replace(energy=False), together)
        return dict(result, energy=energy.unavailable(str(reason)))

    def of_engine(self, engine: Any, plan: Plan) -> Dict[str, Any]:
        """Measures inferences of an engine, or takes the times that it measures by itself; see `measure`."""
        times_s = getattr(engine, "times_s", None)
        return self.measure(engine.invoke, plan) if times_s is None else self.taken(times_s, plan)

    def taken(self, times_s: Callable[[Plan], List[float]], plan: Plan) -> Dict[str, Any]:
        """Takes times that an engine measures by itself, in a process whose start energy would have in it.

        Args:
            times_s: seconds of single runs, by a plan.
            plan: of the measurement.

        Returns:
            As `measure`.
        """

        def take(_window_s: float) -> Window:
            start_s = time.monotonic()
            times = times_s(plan)
            return Window(times, start_s, time.monotonic(), len(times))

        with self._one:
            kept, answer = take_windows(self._plain, plan._replace(energy=False), take)
        times = [seconds for window in kept for seconds in window.found]
        none = energy.unavailable("the times are of a program that runs by itself")
        return dict(answer, times_s=times, number=1, threads=self._threads, energy=none)

    def _no_energy(self, plan: Plan) -> Optional[str]:
        """The reason why energy cannot be measured, or None. The first call also takes the idle power."""
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

    def _windows(self, meter: Any, call: Callable[[], Any], plan: Plan, together: int) -> Dict[str, Any]:
        number = 1

        def take(window_s: float) -> Window:
            nonlocal number
            # Sampling begins with the warm-up, so that a reading under load precedes the window.
            number = _warm_up(call, plan)
            start_s = time.monotonic()
            times = _sample(call, plan, number, window_s)
            return Window(times, start_s, time.monotonic(), len(times) * number * together)

        kept, answer = take_windows(meter, plan, take)
        times = [seconds / together for window in kept for seconds in window.found]
        return dict(answer, times_s=times, number=number * together, threads=self._threads)


def _warm_up(call: Callable[[], Any], plan: Plan) -> int:
    """Runs until the warm-up is over, and returns the number of runs that make a sample."""
    clock = time.perf_counter
    warm_up = WarmUp(plan)
    started = clock()
    while True:
        begin = clock()
        call()
        end = clock()
        if warm_up.add(end - begin, end - started):
            return warm_up.runs_per_sample


def _sample(call: Callable[[], Any], plan: Plan, number: int, window_s: float) -> List[float]:
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
        if enough_samples(plan, len(times), end - started, window_s):
            return times
