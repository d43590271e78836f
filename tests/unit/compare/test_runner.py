"""Interleaved comparison, with sessions that record what is asked of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from host.compare.energy_windows import mean_energy
from host.compare.entrants import EntrantResult, ratio_between
from host.compare.runner import Condition, Effort, InterleavedRun, compare_sessions
from host.errors import DeviceError, MeasureError, SessionLost
from host.model import Energy, Measurement
from host.progress import Silence
from host.statistics import MIN_TRIALS

NO_ENERGY = Energy("unavailable", None, None, "no sensor")


class Session:
    """A session whose times come from a function of the round."""

    def __init__(self, name, log, time_of):
        self.name, self.log, self.time_of = name, log, time_of
        self.joules_of = lambda window: 0.5
        self.rounds = self.windows = 0
        self.running = True

    def set_inputs(self, inputs):
        self.log.append((self.name, "inputs", len(inputs)))

    def pause(self):
        self.running = False
        self.log.append((self.name, "pause"))

    def resume(self):
        self.running = True
        self.log.append((self.name, "resume"))

    def measure(self, energy, **plan):
        self.log.append((self.name, "energy" if energy else "measure"))
        if energy:
            self.windows += 1
            joules = self.joules_of(self.windows)
            above = None if joules is None else joules / 2
            kind = "unavailable" if joules is None else "measured"
            return Measurement(
                (2.0 if self.name == "theirs" else 1.0,), Energy(kind, joules, above, "fake"), {}, {}, 1
            )
        self.rounds += 1
        time = self.time_of(self.rounds)
        if isinstance(time, Exception):
            raise time
        return Measurement(
            (time, time, time * 1.5), NO_ENERGY, {"round": self.rounds}, {"round": self.rounds}, 1
        )


def race(log, **times):
    return {name: Session(name, log, time_of) for name, time_of in times.items()}


def compare(sessions, inputs, rounds=10, windows=1):
    return compare_sessions(sessions, inputs, Effort(rounds=rounds, windows=windows))


def test_only_one_session_runs_at_a_time():
    log = []
    sessions = race(log, a=lambda r: 1.0, b=lambda r: 2.0, c=lambda r: 3.0)
    running = set(sessions)
    compare(sessions, [np.zeros(1)], rounds=6)
    measured = 0
    for name, action, *_ in log:
        if action == "pause":
            running.discard(name)
        elif action == "resume":
            running.add(name)
        elif action in ("measure", "energy"):
            assert running == {name}
            measured += 1
    assert measured == 3 * 7
    assert all(session.running for session in sessions.values())


def test_every_round_has_every_session_once_in_a_drawn_order():
    log = []
    compare(race(log, a=lambda r: 1.0, b=lambda r: 2.0, c=lambda r: 3.0), [], rounds=8, windows=0)
    order = [name for name, action, *_ in log if action == "measure"]
    rounds = [tuple(order[i : i + 3]) for i in range(0, len(order), 3)]
    assert all(sorted(one) == ["a", "b", "c"] for one in rounds)
    assert len(set(rounds)) > 1


def test_the_ratio_cancels_what_rounds_share():
    drift = np.random.default_rng(3).uniform(0.5, 2.0, 20)
    noise = np.random.default_rng(4).uniform(0.99, 1.01, 20)
    result = compare(
        race([], ours=lambda r: drift[r - 1], theirs=lambda r: 1.5 * drift[r - 1] * noise[r - 1]),
        [],
        rounds=20,
    )
    ratio = ratio_between(result["theirs"], result["ours"])
    assert ratio.value == pytest.approx(1.5, rel=0.02)
    assert 1.48 < ratio.low <= ratio.value <= ratio.high < 1.52
    inverse = ratio_between(result["ours"], result["theirs"])
    assert inverse.value == pytest.approx(1 / ratio.value)


def test_equal_sessions_are_not_told_apart():
    noise = np.random.default_rng(5).uniform(0.9, 1.1, (2, 20))
    result = compare(race([], a=lambda r: noise[0][r - 1], b=lambda r: noise[1][r - 1]), [], rounds=20)
    ratio = ratio_between(result["a"], result["b"])
    assert ratio.low < 1.0 < ratio.high


def test_measurements_hold_all_samples_and_the_energy():
    result = compare(race([], a=lambda r: float(r)), [], rounds=6)
    measurement = result["a"].measurement
    assert measurement.n == 18 and measurement.times_s[:4] == (1.0, 1.0, 1.5, 2.0)
    assert measurement.energy.gross_j == 0.5
    assert (measurement.state_before, measurement.state_after) == ({"round": 1}, {"round": 6})
    assert result["a"].rounds_s == (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)


def test_the_ratio_of_energies_cancels_what_windows_share():
    sessions = race([], ours=lambda r: 1.0, theirs=lambda r: 1.0)
    sessions["ours"].joules_of = lambda window: 1.0 + window % 3
    sessions["theirs"].joules_of = lambda window: 2.0 * (1.0 + window % 3)
    result = compare(sessions, [], rounds=6, windows=6)
    ratio = ratio_between(result["theirs"], result["ours"], "energy")
    assert (ratio.low, ratio.value, ratio.high) == pytest.approx((2.0, 2.0, 2.0))
    assert result["ours"].energy.gross_j == pytest.approx(2.0)
    assert result["ours"].energy.above_idle_j == pytest.approx(1.0)


def test_energies_that_allow_no_bound_have_none():
    sessions = race([], ours=lambda r: 1.0, theirs=lambda r: 1.0)
    few = compare(sessions, [], rounds=6, windows=MIN_TRIALS - 1)
    ratio = ratio_between(few["ours"], few["theirs"], "energy")
    assert (ratio.value, ratio.bounded) == (1.0, False)
    sessions["ours"].joules_of = lambda window: None
    none = compare(sessions, [], rounds=6, windows=6)
    assert ratio_between(none["ours"], none["theirs"], "energy") is None


def test_one_that_dies_does_not_end_the_others():
    def dies(index):
        return SessionLost("crashed") if index == 3 else 1.0

    result = compare(race([], good=lambda r: 1.0, bad=dies), [], rounds=6)
    assert result["good"].measurement is not None
    assert (result["bad"].measurement, result["bad"].reason) == (None, "crashed")
    assert ratio_between(result["bad"], result["good"]) is None


def test_a_device_that_goes_away_ends_the_comparison():
    with pytest.raises(DeviceError, match="went away"):
        compare(race([], a=lambda r: DeviceError("the agent went away")), [], rounds=6)


def test_nobody_left_is_an_error_with_the_reasons():
    with pytest.raises(MeasureError, match="a: crashed"):
        compare(race([], a=lambda r: SessionLost("crashed")), [], rounds=6)


def test_too_few_rounds_are_refused():
    with pytest.raises(MeasureError, match="95% bound"):
        compare({}, [], rounds=MIN_TRIALS - 1)


def test_a_ratio_and_its_inverse_have_inverse_bounds():
    a = EntrantResult("a", rounds_s=(1.0, 2.0, 3.0, 4.0, 5.0, 6.0))
    b = EntrantResult("b", rounds_s=(2.0, 1.0, 4.0, 3.0, 6.0, 5.0))
    there, back = ratio_between(a, b), ratio_between(b, a)
    assert (back.low, back.high) == pytest.approx((1 / there.high, 1 / there.low))


def test_other_inputs_are_given_to_sessions_that_run_and_failures_are_kept():
    log = []

    def dies(index):
        return SessionLost("crashed") if index == 2 else 1.0

    sessions = race(log, a=lambda r: 1.0, b=dies)
    conditions = [Condition([np.zeros(1)], "short", energy=False), Condition([np.zeros(1)] * 2, "long")]
    run = InterleavedRun(sessions, conditions, Effort(rounds=1))
    run.run(Silence())
    assert [entry for entry in log if entry[1] == "inputs"] == [
        (name, "inputs", count) for count in (1, 2) for name in ("a", "b")
    ]
    stopped = set()
    for name, action, *_ in log:
        assert not (action == "inputs" and name in stopped), "a stopped process takes no inputs"
        stopped = (
            stopped | {name} if action == "pause" else stopped - {name} if action == "resume" else stopped
        )
    short, long = (run.results(condition) for condition in conditions)
    assert (len(short["a"].windows), len(long["a"].windows)) == (0, 1)
    assert short["b"].reason == long["b"].reason == "crashed"


def test_the_product_of_energy_and_delay_is_that_of_the_windows():
    sessions = race([], ours=lambda r: 1.0, theirs=lambda r: 1.0)
    sessions["theirs"].joules_of = lambda window: 2.0
    result = compare(sessions, [], rounds=6, windows=6)
    assert len(result["ours"].windows) == 6
    ratio = ratio_between(result["theirs"], result["ours"], "edp")
    assert (ratio.low, ratio.value, ratio.high) == pytest.approx((8.0, 8.0, 8.0))


def test_energies_of_different_boundaries_have_no_ratio():
    sessions = race([], ours=lambda r: 1.0, theirs=lambda r: 1.0)
    result = compare(sessions, [], rounds=6, windows=6)
    theirs = result["theirs"].measurement
    other = replace(theirs, energy=replace(theirs.energy, boundary="wall"))
    assert ratio_between(replace(result["theirs"], measurement=other), result["ours"], "energy") is None


def test_energy_over_several_windows_keeps_its_spread():
    windows = [
        Energy("measured", j, j / 2, "s", "board", mean_w=w, peak_w=w, trials=1, n_samples=10, duration_s=5.0)
        for j, w in ((1.0, 10.0), (2.0, 20.0), (3.0, 12.0))
    ]
    mean = mean_energy(windows)
    assert (mean.gross_j, mean.above_idle_j, mean.mean_w, mean.peak_w) == (2.0, 1.0, 14.0, 20.0)
    assert (mean.std_j, mean.trials, mean.n_samples, mean.duration_s) == (1.0, 3, 30, 15.0)
    assert mean_energy([*windows, NO_ENERGY]).gross_j is None
    assert mean_energy([]) is None


def test_windows_of_energy_begin_as_cool_as_the_first_one():
    begins = iter((40.0, 55.0, 43.0, 41.0))

    plans = []

    class Warm(Session):
        def measure(self, energy, **plan):
            found = super().measure(energy, **plan)
            if energy:
                plans.append(plan)
                return replace(found, state_before={"temperatures_c": {"a": 30.0, "b": next(begins)}})
            return found

    warm = Warm("a", [], lambda r: 1.0)
    compare({"a": warm}, [np.zeros(1)], rounds=6, windows=4)
    assert [plan["start_c"] for plan in plans] == [0.0, 40.0, 40.0, 40.0]
    # The rounds are the trials.
    assert {plan["trials"] for plan in plans} == {1}


def test_a_device_that_is_slowed_down_between_rounds_is_marked():
    sessions = race([], a=lambda r: 1.0, b=lambda r: 1.0)
    plain = sessions["a"].measure

    def measure(energy, **plan):
        return replace(plain(energy, **plan), state_before={"throttle_count": sessions["a"].rounds // 4})

    sessions["a"].measure = measure
    result = compare(sessions, [], rounds=6)
    assert result["a"].measurement.throttle_reasons == ("the throttle count rose from 0 to 1",)
    assert not result["a"].trusted and result["b"].trusted


class Listener(Silence):
    """Keeps what is told of the times."""

    def __init__(self):
        self.told = []

    def latencies(self, seconds):
        self.told.append(dict(seconds))


def test_medians_so_far_are_told_after_each_round_without_those_that_dropped_out():
    def dies(index):
        return SessionLost("crashed") if index == 3 else 5.0

    sessions = race([], **{"tvm/1": lambda r: float(r), "onnxruntime/1": lambda r: 10.0, "litert/1": dies})
    listener = Listener()
    run = InterleavedRun(sessions, [Condition([np.zeros(1)])], Effort(rounds=3))
    run.run(listener)
    assert listener.told == [
        {"tvm": 1.0, "onnxruntime": 10.0, "litert": 5.0},
        {"tvm": 1.75, "onnxruntime": 10.0, "litert": 5.0},
        {"tvm": 2.0, "onnxruntime": 10.0},
    ]


def test_threads_tell_variants_of_a_name_apart_and_times_of_an_emulator_are_not_told():
    sessions = race([], **{"fastest/1": lambda r: 2.0, "fastest/2": lambda r: 1.0})
    conditions = [Condition([np.zeros(1)], "15W"), Condition([np.zeros(1)], "7W", absent=("fastest/1",))]
    listener = Listener()
    InterleavedRun(sessions, conditions, Effort(passes=2, rounds=1, windows=0)).run(listener)
    both, alone = {"fastest/1": 2.0, "fastest/2": 1.0}, {"fastest": 1.0}
    assert listener.told == [both, alone, alone, both]
    silent = Listener()
    InterleavedRun(sessions, conditions, Effort(rounds=1, windows=0)).run(silent, times_count=False)
    assert silent.told == []
