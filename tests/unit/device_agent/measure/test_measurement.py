"""Plans of measurements and what a meter makes of them, on a clock of the test's own."""

from __future__ import annotations

import math
import threading
import time

import pytest

from device_agent.board.machine import Machine
from device_agent.contract.measuring import Plan
from device_agent.errors import AgentError
from device_agent.measure.measurement import Meter, plan_of
from device_agent.measure.meter import PowerMeter
from device_agent.measure.meter_client import MeterLost
from device_agent.power.none import NoSensor


class Clock:
    """Time that only work moves."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


@pytest.fixture
def meter(tmp_path):
    machine = Machine(str(tmp_path))
    return Meter(machine, PowerMeter(machine, NoSensor("no sensor here")), threads=2)


class Work:
    """A call that takes as long as a function of the number of calls says.

    Args:
        clock: that the call moves.
        seconds: by the number of calls, this one included.
    """

    def __init__(self, clock, seconds):
        self.calls = 0
        self._clock, self._seconds = clock, seconds

    def __call__(self):
        self.calls += 1
        self._clock.now += self._seconds(self.calls)


def worker(clock, seconds):
    return Work(clock, lambda _calls: seconds)


def test_a_measurement_has_what_the_plan_asks_for(clock, meter):
    work = worker(clock, 0.01)
    result = meter.measure(work, Plan(warmup_s=0.1, min_repeats=5, min_time_s=0.2))
    assert len(result["times_s"]) in (20, 21) and result["number"] == 1
    assert result["times_s"] == pytest.approx([0.01] * len(result["times_s"]))
    # Ten runs of warm-up are not among the samples.
    assert work.calls in range(len(result["times_s"]) + 10, len(result["times_s"]) + 12)
    assert result["threads"] == 2
    assert result["energy"]["kind"] == "unavailable" and result["energy"]["gross_j"] is None
    assert result["energy"]["source"] == "no sensor here"
    assert "clocks_hz" in result["state_before"] and "clocks_hz" in result["state_after"]


def test_slow_runs_get_their_repeats(clock, meter):
    result = meter.measure(worker(clock, 1.0), Plan(min_repeats=4, min_time_s=0.0))
    assert len(result["times_s"]) == 4


def test_the_longest_time_ends_a_measurement(clock, meter):
    result = meter.measure(worker(clock, 1.0), Plan(min_repeats=100, max_time_s=3.0))
    assert len(result["times_s"]) == 3


def test_one_sample_is_taken_in_any_case(clock, meter):
    result = meter.measure(worker(clock, 50.0), Plan(max_time_s=1.0))
    assert result["times_s"] == [50.0]


def test_short_runs_are_repeated_within_a_sample(clock, meter):
    result = meter.measure(worker(clock, 1e-5), Plan(min_sample_s=1e-3, min_time_s=0.01, min_repeats=1))
    assert result["number"] in (100, 101)
    assert result["times_s"] == pytest.approx([1e-5] * len(result["times_s"]))


def test_samples_are_bounded(clock, meter):
    plan = Plan(max_repeats=7, min_repeats=2, min_time_s=50.0, min_sample_s=0.0)
    assert len(meter.measure(worker(clock, 0.01), plan)["times_s"]) == 7


def test_energy_not_asked_for_is_unavailable(clock, meter):
    result = meter.measure(worker(clock, 0.1), Plan(energy=False))
    assert result["energy"]["source"] == "not asked for"


class Power:
    """A meter of the test's own: what it was asked, and answers as the plan of its windows says."""

    def __init__(self, *answers, window_s=0.0, fails=""):
        self.answers = list(answers)
        self.window_s = window_s
        self.fails = fails
        self.asked = []

    def ask(self, name, *values):
        self.asked.append((name, *values))
        if name == self.fails:
            raise MeterLost("the power meter ended with code 1")

    def probe(self):
        self.ask("probe")
        return {"unavailable": None}

    def idle(self, seconds):
        self.ask("idle", seconds)
        return {"mean_w": 2.0, "std_w": 0.1}

    def begin(self, plan=None):
        self.ask("begin", plan)
        return {"time_s": 0.0, "window_s": self.window_s}

    def end(self, start_s, end_s, runs):
        self.ask("end", start_s, end_s, runs)
        keep, again = self.answers.pop(0)
        return {"energy": {"kind": "measured"}, "keep": keep, "again": again, "throttled": not keep}

    def close(self):
        self.asked.append(("close",))


def test_a_window_of_energy_has_its_own_length(clock, tmp_path):
    power = Power((True, False), window_s=6.0)
    meter = Meter(Machine(str(tmp_path)), power, threads=1)
    plan = Plan(min_time_s=1.0, min_repeats=1, max_repeats=3, max_time_s=2.0, warmup_s=1.0)
    result = meter.measure(worker(clock, 0.5), plan)
    assert len(result["times_s"]) == 12 and result["energy"] == {"kind": "measured"}
    assert [request[0] for request in power.asked] == ["probe", "idle", "begin", "end"]
    assert power.asked[1] == ("idle", 10.0) and power.asked[2][1] == plan._asdict()
    # The window begins behind the warm-up, which is sampled already.
    _, start_s, end_s, runs = power.asked[3]
    assert (start_s, end_s, runs) == (2.5, 8.5, 12)


def test_windows_go_on_until_the_meter_has_enough_and_only_kept_ones_count(clock, tmp_path):
    power = Power((False, True), (True, True), (True, False), window_s=2.0)
    meter = Meter(Machine(str(tmp_path)), power, threads=1)
    result = meter.measure(worker(clock, 0.5), Plan(min_time_s=0.0, min_repeats=1, idle_s=0.0))
    assert len(result["times_s"]) == 8
    plans = [request[1] for request in power.asked if request[0] == "begin"]
    assert plans[0] is not None and plans[1:] == [None, None]
    # A session probes and idles once.
    power.answers = [(True, False)]
    meter.measure(worker(clock, 0.5), Plan(min_time_s=0.0, min_repeats=1, idle_s=0.0))
    assert [request[0] for request in power.asked].count("probe") == 1


@pytest.mark.parametrize("moment", ["probe", "idle", "begin", "end"])
def test_without_its_meter_a_measurement_has_times_and_a_reason(clock, tmp_path, moment):
    meter = Meter(Machine(str(tmp_path)), Power((True, False), fails=moment), threads=1)
    for _ in range(2):
        result = meter.measure(worker(clock, 0.1), Plan(min_time_s=0.5))
        assert len(result["times_s"]) >= 20
        assert result["energy"]["kind"] == "unavailable" and result["energy"]["gross_j"] is None
        assert result["energy"]["source"] == "the power meter ended with code 1"


def test_warm_up_goes_on_while_the_runs_get_faster(clock, meter):
    work = Work(clock, lambda calls: max(0.01, 0.1 * 0.8**calls))
    result = meter.measure(work, Plan(warmup_s=0.3, min_repeats=5, min_time_s=0.0))
    assert max(result["times_s"]) < 0.02


def test_slow_first_runs_are_over_at_the_end_of_warm_up(clock, meter):
    """The example of docs/agent.md: 100 ms, half as much again at first, which decays by e in four runs."""
    work = Work(clock, lambda calls: 0.1 * (1.0 + 0.5 * math.exp((1 - calls) / 4)))
    result = meter.measure(work, Plan(energy=False))
    assert 0.005 < result["times_s"][0] / 0.1 - 1.0 < 0.01
    warm_up_s = clock.now - sum(result["times_s"])
    assert warm_up_s == pytest.approx(1.8, abs=0.05)


def throttling(root, count):
    """The counter of a core (Linux, thermal_throttle)."""
    file = root / "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{count}\n")


def test_a_throttled_measurement_is_repeated_and_marked_if_it_stays_so(clock, tmp_path):
    throttling(tmp_path, 0)
    machine = Machine(str(tmp_path))
    meter = Meter(machine, PowerMeter(machine, NoSensor("none")), threads=1)

    hot = {3}

    def seconds(calls):
        if calls in hot:
            throttling(tmp_path, calls)
        return 0.1

    work = Work(clock, seconds)
    plan = Plan(min_repeats=5, max_repeats=5, min_time_s=0.0, warmup_s=0.0, warmup_runs=1, energy=False)
    result = meter.measure(work, plan)
    assert len(result["times_s"]) == 5 and work.calls == 12
    assert not result["throttled"] and result["conditions"]["retries"] == 1
    work.calls, hot = 0, range(1000)
    result = meter.measure(work, plan)
    assert result["throttled"] and "cores throttled" in result["throttle_reasons"][0]
    assert result["conditions"]["retries"] == result["conditions"]["retry_limit"] == 2
    assert len(result["times_s"]) == 5


def test_requests_become_plans():
    plan = plan_of({"min_repeats": 7, "warmup_s": 1, "energy": False})
    assert plan == Plan(min_repeats=7, warmup_s=1.0, energy=False)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"repeats": 3}, "unknown fields of a measurement: repeats"),
        ({"min_repeats": "many"}, "min_repeats is .many.; a whole number"),
        ({"min_repeats": True}, "min_repeats is True"),
        ({"max_time_s": float("inf")}, "max_time_s is inf"),
        ({"max_repeats": 10**12}, "max_repeats is 1000000000000"),
        ({"energy": 1}, "energy is 1; true or false"),
        ({"min_repeats": 0}, "at least one sample"),
        ({"max_time_s": 0}, "some time"),
        ({"min_repeats": 10, "max_repeats": 5}, "at least one sample"),
    ],
)
def test_impossible_plans_are_refused(fields, text):
    with pytest.raises(AgentError, match=text):
        plan_of(fields)


def test_times_of_an_engine_do_not_begin_within_another_measurement(meter):
    """Two measurements at once would take each other's states for their own."""
    begun, done = threading.Event(), threading.Event()

    def times_s(_plan):
        begun.set()
        return [1.0]

    def other():
        meter.taken(times_s, Plan())
        done.set()

    thread = threading.Thread(target=other)
    waited = []

    def call():
        if not waited:
            thread.start()
            waited.append(begun.wait(0.2))

    meter.measure(call, Plan(warmup_s=0.0, warmup_runs=1, min_repeats=1, min_time_s=0.0, energy=False))
    thread.join(10.0)
    assert waited == [False] and done.is_set()
