"""Plans of measurements and what a meter makes of them, on a clock of the test's own."""

from __future__ import annotations

import pytest

from device_agent import measure
from device_agent.machine import Machine
from device_agent.measure import Meter, Plan, plan_of
from device_agent.power.none import NoSensor
from device_agent.wire import AgentError


class Clock:
    """Time that only work moves."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(measure.time, "perf_counter", lambda: self.now)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


@pytest.fixture
def meter(tmp_path):
    return Meter(Machine(str(tmp_path)), NoSensor("no sensor here"), threads=2)


def worker(clock, seconds):
    def work():
        work.calls += 1
        clock.now += seconds

    work.calls = 0
    return work


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


class Counter:
    """An energy counter that follows the test's clock at 10 W."""

    period_s = 3600.0

    def __init__(self, clock):
        self.clock = clock

    def probe(self):
        return None

    def describe(self):
        return {"source": "fake", "quantity": "energy", "rails": ["all"], "boundary": "board"}

    def read(self):
        return self.clock.now * 10.0

    def joules(self, before, after):
        return after - before


def test_energy_is_measured_over_a_window_of_its_own_length(clock, tmp_path, monkeypatch):
    monkeypatch.setattr(measure.energy.time, "monotonic", lambda: clock.now)
    meter = Meter(Machine(str(tmp_path)), Counter(clock), threads=1)
    result = meter.measure(worker(clock, 0.5), Plan(min_time_s=1.0, min_repeats=1, energy_s=6.0, idle_s=0.0))
    assert len(result["times_s"]) == 12
    assert result["energy"]["kind"] == "measured"
    assert result["energy"]["gross_j"] == pytest.approx(5.0)
    assert result["energy"]["boundary"] == "board"


def test_requests_become_plans():
    plan = plan_of({"min_repeats": 7, "warmup_s": 1, "energy": False})
    assert plan == Plan(min_repeats=7, warmup_s=1.0, energy=False)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"repeats": 3}, "unknown fields of a measurement: repeats"),
        ({"min_repeats": "many"}, "is no number"),
        ({"min_repeats": 0}, "at least one sample"),
        ({"max_time_s": 0}, "some time"),
        ({"min_repeats": 10, "max_repeats": 5}, "at least one sample"),
    ],
)
def test_impossible_plans_are_refused(fields, text):
    with pytest.raises(AgentError, match=text):
        plan_of(fields)
