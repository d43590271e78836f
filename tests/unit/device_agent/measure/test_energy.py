"""Energy arithmetic against signals whose energy is known."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.measure import energy
from device_agent.measure.energy import EnergyError, Idle, Readings, Trial, counter_joules, counter_spans

DESCRIPTION = {"source": "fake", "kind": "measured", "rails": ["all"], "boundary": "board"}


@st.composite
def sampled(draw):
    """Samples of power in order."""
    steps = draw(st.lists(st.tuples(st.floats(0.01, 5), st.floats(0, 100)), min_size=2, max_size=20))
    time, samples = 0.0, []
    for gap, watts in steps:
        time += gap
        samples.append((time, watts))
    return samples


@given(sampled(), st.floats(0.01, 0.99))
def test_the_trapezoid_is_additive_over_windows(samples, share):
    start, end = samples[0][0], samples[-1][0]
    middle = start + share * (end - start)
    whole = energy.trapezoid_joules(samples, start, end)
    parts = energy.trapezoid_joules(samples, start, middle) + energy.trapezoid_joules(samples, middle, end)
    assert parts == pytest.approx(whole, rel=1e-9, abs=1e-9)


@given(sampled(), st.floats(-1e6, 1e6))
def test_the_trapezoid_does_not_know_what_time_it_is(samples, shift):
    start, end = samples[0][0], samples[-1][0]
    moved = [(time + shift, watts) for time, watts in samples]
    there = energy.trapezoid_joules(moved, start + shift, end + shift)
    assert there == pytest.approx(energy.trapezoid_joules(samples, start, end), rel=1e-4, abs=1e-4)


@given(sampled())
def test_the_trapezoid_lies_between_least_and_greatest_power(samples):
    start, end = samples[0][0], samples[-1][0]
    joules = energy.trapezoid_joules(samples, start, end)
    watts = [value for _, value in samples]
    slack = 1e-9 * (1.0 + joules)
    assert min(watts) * (end - start) - slack <= joules <= max(watts) * (end - start) + slack


@given(sampled(), st.floats(0.1, 10))
def test_twice_the_power_is_twice_the_energy(samples, factor):
    start, end = samples[0][0], samples[-1][0]
    scaled = [(time, factor * watts) for time, watts in samples]
    once = energy.trapezoid_joules(samples, start, end)
    assert energy.trapezoid_joules(scaled, start, end) == pytest.approx(factor * once, rel=1e-9, abs=1e-9)


def test_constant_power_is_power_times_time():
    assert energy.trapezoid_joules([(0.0, 5.0), (10.0, 5.0)], 2.5, 7.5) == pytest.approx(25.0)


def test_power_ramps_are_interpolated_at_the_edges():
    assert energy.trapezoid_joules([(0.0, 0.0), (10.0, 10.0)], 4.0, 6.0) == pytest.approx(10.0)


def test_edges_without_readings_are_held_constant():
    assert energy.trapezoid_joules([(1.0, 2.0), (2.0, 4.0)], 0.0, 3.0) == pytest.approx(2.0 + 3.0 + 4.0)


@pytest.mark.parametrize(("samples", "start", "end"), [([], 0, 1), ([(0.0, 1.0)], 1.0, 1.0)])
def test_no_evidence_is_an_error(samples, start, end):
    with pytest.raises(ValueError, match="at least one sample"):
        energy.trapezoid_joules(samples, start, end)


def wave(at_s):
    """A load that swings between 4 and 8 W twice a second, over an idle board of 2 W."""
    return 6.0 + 2.0 * math.sin(2 * math.pi * 2.0 * at_s)


def wave_joules(start, end):
    """Its exact integral."""
    omega = 2 * math.pi * 2.0
    return 6.0 * (end - start) - 2.0 / omega * (math.cos(omega * end) - math.cos(omega * start))


@pytest.mark.parametrize("period_s", [0.02, 0.1])
def test_a_load_that_swings_is_integrated_within_two_percent(period_s):
    start, end = 3.037, 13.411
    samples = [(index * period_s, wave(index * period_s)) for index in range(int(15 / period_s))]
    trial = Readings(None, samples, [], []).trial(start, end, 100)
    assert trial.joules == pytest.approx(wave_joules(start, end), rel=0.02)
    assert trial.seconds == pytest.approx(end - start)
    assert trial.n_samples == sum(start <= time <= end for time, _ in samples)
    assert trial.peak_w == pytest.approx(8.0, rel=0.02)


def counted(samples):
    return lambda before, after: None if after < before else (after - before) * 1e-3


@pytest.mark.parametrize("update_s", [0.001, 0.1, 0.5])
def test_counters_that_change_rarely_are_aligned_to_their_changes(update_s):
    """NVML renews its counter every 100 ms and is read every 20: the steps must not become power."""
    start, end = 3.037, 13.411
    readings = []
    for index in range(750):
        time = index * 0.02
        known = math.floor(time / update_s) * update_s
        readings.append((time, int(1000 * wave_joules(0.0, known))))
    trial = Readings(counted(readings), readings, [], []).trial(start, end, 10)
    assert trial.joules == pytest.approx(wave_joules(start, end), rel=0.02)
    assert trial.peak_w < 8.0 * 1.35


def test_an_interval_in_which_an_unknown_counter_wrapped_is_discarded():
    readings = [(index * 0.1, (index * 700 + 60_000) % 65_536) for index in range(200)]
    wraps = sum(b[1] < a[1] for a, b in itertools.pairwise(readings))
    assert wraps == 3
    trial = Readings(counted(readings), readings, [], []).trial(1.0, 19.0, 5)
    assert trial.joules == pytest.approx(7.0 * 18.0, rel=0.02)
    assert trial.n_dropped == wraps


def test_spans_hold_the_mean_power_between_changes():
    spans, discarded = counter_spans([(0.0, 0), (1.0, 1000), (2.0, 1000), (3.0, 5000)], counted(None))
    assert discarded == 0
    assert [(span.begin_s, span.end_s, span.watts) for span in spans] == [(0.0, 1.0, 1.0), (1.0, 3.0, 2.0)]
    assert counter_joules(spans, 0.5, 2.0) == pytest.approx(0.5 + 2.0)


def test_a_reading_that_comes_late_is_no_peak():
    """10 W, one reading stamped 40 ms late: two spans of a tenth of a second would show 7 and 17 W."""
    readings = [(index * 0.1 + 0.04 * (index == 50), index * 1000) for index in range(100)]
    trial = Readings(counted(readings), readings, [], []).trial(1.0, 9.0, 5)
    assert trial.joules == pytest.approx(80.0, rel=0.001)
    assert trial.peak_w == pytest.approx(10.0, rel=0.1)
    assert 14 <= len(trial.trace) <= 18


def test_a_counter_that_stands_still_tells_nothing():
    readings = [(index * 0.1, 42) for index in range(100)]
    with pytest.raises(EnergyError, match="changed too seldom"):
        Readings(counted(readings), readings, [], []).trial(1.0, 9.0, 5)


def test_some_failed_readings_are_counted_and_too_many_end_it():
    samples = [(index * 0.1, 5.0) for index in range(100)]
    trial = Readings(None, samples, [4.05, 4.15, 99.0], []).trial(2.0, 8.0, 5)
    assert (trial.n_dropped, trial.joules) == (2, pytest.approx(30.0))
    failed = [2.0 + index * 0.1 for index in range(10)]
    with pytest.raises(EnergyError, match=r"10 of 7. readings of the sensor failed"):
        Readings(None, samples, failed, []).trial(2.0, 8.0, 5)


def test_too_few_readings_of_power_are_not_passed_for_a_mean():
    samples = [(float(index), 5.0) for index in range(10)]
    with pytest.raises(EnergyError, match=r"only 3 readings .* make it longer"):
        Readings(None, samples, [], []).trial(1.5, 4.5, 5)


@pytest.mark.parametrize(("start", "end", "runs"), [(1.0, 1.0, 5), (2.0, 1.0, 5), (1.0, 2.0, 0)])
def test_a_window_without_length_or_work_has_no_energy(start, end, runs):
    samples = [(index * 0.1, 5.0) for index in range(100)]
    with pytest.raises(EnergyError, match="no length or no inference"):
        Readings(None, samples, [], []).trial(start, end, runs)


def test_power_over_time_is_kept_in_few_points_with_the_temperature():
    samples = [(index * 0.02, 5.0 + index // 500) for index in range(1000)]
    hottest = [(float(second), 40.0 + second) for second in range(20)]
    trial = Readings(None, samples, [], []).trial(1.0, 19.0, 5, hottest)
    assert 90 <= len(trial.trace) <= 120
    assert trial.trace[0][1] == pytest.approx(5.0) and trial.trace[-1][1] == pytest.approx(6.0)
    assert trial.trace[0][2] == 41.0 and trial.trace[-1][2] == 58.0


def trial(joules, runs=50, seconds=10.0, peak=12.0):
    return Trial(joules, seconds, runs, 100, 1, peak, 0.0, ((0.0, 10.0, 41.0),))


def test_energy_of_a_run_is_gross_and_above_idle():
    record = energy.record(DESCRIPTION, [trial(100.0)], Idle(4.0, 0.1))
    assert record["kind"] == "measured" and record["source"] == "fake (all)"
    assert record["gross_j"] == pytest.approx(2.0)
    assert record["above_idle_j"] == pytest.approx(1.2)
    assert (record["mean_w"], record["peak_w"], record["idle_w"]) == (pytest.approx(10.0), 12.0, 4.0)
    assert record["std_j"] is None and record["trials"] == 1
    assert record["sample_period_s"] == pytest.approx(0.1) and record["n_dropped"] == 1


def test_trials_give_a_mean_and_its_spread():
    record = energy.record(DESCRIPTION, [trial(99.0), trial(100.0), trial(101.0, peak=14.0)], Idle(4.0, 0.1))
    assert record["gross_j"] == pytest.approx(2.0) and record["std_j"] == pytest.approx(0.02)
    assert (record["trials"], record["n_inferences"], record["n_samples"]) == (3, 150, 300)
    assert (record["duration_s"], record["peak_w"]) == (30.0, 14.0)
    assert record["above_idle_j"] == pytest.approx(1.2)
    assert len(record["trace"]) == 3


def test_what_idle_could_explain_is_not_claimed():
    record = energy.record(DESCRIPTION, [trial(100.0)], Idle(9.0, 0.5))
    assert record["above_idle_j"] is None
    assert record["reason"] == "not distinguishable from idle"


def test_without_idle_power_only_gross_is_known():
    record = energy.record(DESCRIPTION, [trial(100.0)], None)
    assert record["above_idle_j"] is None and record["gross_j"] == pytest.approx(2.0)
    assert record["reason"] == "no idle power was taken" and record["idle_w"] is None


def test_an_estimate_is_called_so():
    assert energy.record(dict(DESCRIPTION, kind="estimated"), [trial(1.0)], None)["kind"] == "estimated"


def test_what_is_unavailable_is_none_and_never_zero():
    record = energy.unavailable("no sensor")
    assert record["kind"] == "unavailable" and record["reason"] == "no sensor"
    assert record["gross_j"] is None and record["above_idle_j"] is None
