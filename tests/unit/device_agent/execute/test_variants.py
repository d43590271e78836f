"""In which order variants of a model run, which of them are dropped, and what is told of them."""

from __future__ import annotations

import json

import pytest

from device_agent.board.machine import Machine
from device_agent.contract.measuring import VariantPlan
from device_agent.errors import AgentError
from device_agent.execute.kernel_times import KernelTimes, KernelTotal
from device_agent.execute.variants import VariantMeter, measure_in_turn
from device_agent.measure.measurement import variant_plan_of


class Scripted:
    """A variant whose runs take what a list says; the last one again and again.

    Args:
        log: takes the variant's name at each run.
        name: of the variant.
        seconds: of all three calls of its kernel, by run.
    """

    def __init__(self, log, name, *seconds):
        self._log, self._name, self._seconds = log, name, list(seconds)

    def run(self):
        self._log.append(self._name)
        seconds = self._seconds.pop(0) if len(self._seconds) > 1 else self._seconds[0]
        return {"k": KernelTotal(3, seconds)}


def measured(plan, **variants):
    log = []
    found = measure_in_turn([Scripted(log, name, *times) for name, times in variants.items()], plan)
    return log, [(one["slow"], one["kernels"][0]["times_s"]) for one in found]


def test_each_runs_once_uncounted_and_then_once_in_a_round():
    log, found = measured(VariantPlan(runs=3), a=(9, 1, 2, 3), b=(8, 4, 5, 6), c=(7, 7))
    assert log[:3] == ["a", "b", "c"] and len(log) == 12
    assert all(sorted(log[start : start + 3]) == ["a", "b", "c"] for start in range(0, 12, 3))
    assert found == [(False, [1, 2, 3]), (False, [4, 5, 6]), (False, [7, 7, 7])]


def test_the_order_changes_and_the_seed_decides_it():
    variants = dict.fromkeys("abcdef", (1,))
    orders = [measured(VariantPlan(runs=5, seed=seed), **variants)[0] for seed in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2]
    rounds = {tuple(orders[0][start : start + 6]) for start in range(6, 36, 6)}
    assert len(rounds) > 1


def test_a_slow_variant_reports_its_only_run():
    log, found = measured(VariantPlan(runs=2, slowest=3.0), a=(1, 2, 2), b=(3.01, 1), c=(3, 5, 5))
    assert log.count("b") == 1
    assert found == [(False, [2, 2]), (True, [3.01]), (False, [5, 5])]


def test_the_first_variant_is_never_slow():
    _, found = measured(VariantPlan(runs=2), a=(100, 1), b=(1,))
    assert [slow for slow, _ in found] == [False, False]


def test_no_round_begins_after_the_longest_time(monkeypatch):
    now = iter(range(100))
    monkeypatch.setattr("device_agent.execute.variants.time.monotonic", lambda: next(now))
    log, found = measured(VariantPlan(runs=50, max_s=3.0), a=(1,), b=(1,))
    assert len(log) == 2 + 3 * 2 and [len(times) for _, times in found] == [3, 3]


def test_one_round_is_always_completed():
    _, found = measured(VariantPlan(runs=50, max_s=0.0), a=(1,), b=(1,))
    assert [len(times) for _, times in found] == [1, 1]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"runs": 0}, "at least one run"),
        ({"runs": 1.5}, "runs is 1.5; a whole number"),
        ({"runs": 1 << 60}, "a whole number from 0 to"),
        ({"max_s": -1}, "max_s is -1"),
        ({"max_s": "soon"}, "max_s is 'soon'"),
        ({"slowest": 0.5}, "a limit of at least 1"),
        ({"slowest": float("nan")}, "slowest is nan"),
        ({"seed": -1}, "seed is -1"),
        ({"colour": 1}, "unknown fields of a measurement: colour"),
    ],
)
def test_a_plan_out_of_range_is_refused(fields, message):
    with pytest.raises(AgentError, match=message):
        variant_plan_of(fields)
    assert variant_plan_of({}) == VariantPlan()


class Meter(VariantMeter):
    """Measures variants that do as a script says."""

    def _variant(self, model, library, place):
        return library


class Model:
    """A loaded model that notes its runs."""

    def __init__(self):
        self.runs = 0

    def invoke(self):
        self.runs += 1


def test_a_measurement_in_which_the_board_throttled_is_made_again(tmp_path):
    counter = tmp_path / "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count"
    counter.parent.mkdir(parents=True)
    counter.write_text("0")

    class Hot(Scripted):
        def run(self):
            if not self._log:
                counter.write_text("1")
            return super().run()

    log, model = [], Model()
    answer = Meter(Machine(str(tmp_path)), 2).measure(
        model, json.dumps({"runs": 1, "cool_s": 0.0}), [Hot(log, "a", 1, 2, 3, 4)]
    )
    told = json.loads(answer)
    # The second window's warm-up and run, after the two of the first.
    assert told["variants"] == [{"slow": False, "kernels": [{"name": "k", "calls": 3, "times_s": [4]}]}]
    assert told["conditions"]["retries"] == 1 and not told["throttled"] and told["threads"] == 2
    assert {"state_before", "state_after", "throttle_reasons", "invalid"} <= set(told)
    assert "energy" not in told and model.runs == 1


@pytest.mark.parametrize(
    ("specification", "message"), [("[]", "is no object"), ("{}", "no variant is given")]
)
def test_what_is_no_specification_is_refused(tmp_path, specification, message):
    with pytest.raises(AgentError, match=message):
        Meter(Machine(str(tmp_path)), 1).measure(Model(), specification, [])


def test_times_of_a_kernel_are_added_up_until_they_are_taken(monkeypatch):
    now, synchronised = [0.0], []
    monkeypatch.setattr("device_agent.execute.kernel_times.time.perf_counter", lambda: now[0])
    times = KernelTimes(lambda: synchronised.append(now[0]))
    for name, seconds in (("a", 1.0), ("b", 2.0), ("a", 4.0)):
        times(None, name, True, None)
        now[0] += seconds
        times(None, name, False, None)
    assert times.take() == {"a": KernelTotal(2, 5.0), "b": KernelTotal(1, 2.0)}
    assert times.take() == {}
    # The device is waited for before and after each call.
    assert synchronised == [0.0, 1.0, 1.0, 3.0, 3.0, 7.0]
