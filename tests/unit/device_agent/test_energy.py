"""RAPL on fake trees, and the arithmetic of energy windows."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent import energy, power
from device_agent.power.rapl import Rapl


def zone(root, name, label, energy_uj, limit=262143328850):
    folder = root / "sys/class/powercap" / name
    folder.mkdir(parents=True)
    (folder / "name").write_text(label + "\n")
    (folder / "energy_uj").write_text(f"{energy_uj}\n")
    (folder / "max_energy_range_uj").write_text(f"{limit}\n")
    return folder


@pytest.fixture
def tree(tmp_path):
    zone(tmp_path, "intel-rapl:0", "package-0", 1_000_000)
    zone(tmp_path, "intel-rapl:0:0", "core", 400_000)
    zone(tmp_path, "intel-rapl:1", "psys", 9_000_000)
    zone(tmp_path, "intel-rapl-mmio:0", "package-0", 1_000_000)
    return tmp_path


def test_only_packages_count(tree):
    zone(tree, "intel-rapl:2", "package-1", 500_000)
    sensor = Rapl(str(tree))
    assert sensor.probe() is None
    assert sensor.read() == [1_000_000, 500_000]
    assert sensor.describe()["rails"] == ["package-0", "package-1"]
    assert sensor.describe()["boundary"] == "package"


def test_joules_recover_one_wrap(tree):
    sensor = Rapl(str(tree))
    assert sensor.probe() is None
    assert sensor.joules([1_000_000], [3_500_000]) == pytest.approx(2.5)
    assert sensor.joules([262_143_000_000], [671_150]) == pytest.approx(1.0)


def test_a_machine_without_rapl_says_so(tmp_path):
    sensor = power.choose(str(tmp_path))
    assert "no RAPL" in sensor.probe()
    with pytest.raises(OSError, match="no RAPL"):
        sensor.read()


def test_a_tree_without_packages_says_so(tmp_path):
    zone(tmp_path, "intel-rapl:0", "psys", 1)
    assert "no package domain" in Rapl(str(tmp_path)).probe()


def test_missing_permission_says_what_to_do(tree, monkeypatch):
    import builtins

    real = builtins.open

    def guarded(path, *arguments, **options):
        # Root reads everything, so the refusal is made here.
        if str(path).endswith("energy_uj"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *arguments, **options)

    monkeypatch.setattr(builtins, "open", guarded)
    sensor = power.choose(str(tree))
    assert "no permission" in sensor.probe() and "CAP_DAC_READ_SEARCH" in sensor.probe()
    assert sensor.describe()["source"] == "none"


def test_unreadable_content_is_a_reason_not_a_crash(tree):
    (tree / "sys/class/powercap/intel-rapl:0/energy_uj").write_text("garbage")
    assert "cannot be read" in Rapl(str(tree)).probe()


@given(st.lists(st.tuples(st.floats(0.01, 5), st.floats(0, 100)), min_size=2, max_size=20), st.data())
def test_the_trapezoid_is_additive_over_windows(steps, data):
    time, samples = 0.0, []
    for gap, watts in steps:
        time += gap
        samples.append((time, watts))
    start, end = samples[0][0], samples[-1][0]
    middle = data.draw(st.floats(start, end))
    if not start < middle < end:
        return
    whole = energy.trapezoid_joules(samples, start, end)
    parts = energy.trapezoid_joules(samples, start, middle) + energy.trapezoid_joules(samples, middle, end)
    assert parts == pytest.approx(whole, rel=1e-9, abs=1e-9)


def test_constant_power_is_power_times_time():
    assert energy.trapezoid_joules([(0.0, 5.0), (10.0, 5.0)], 2.5, 7.5) == pytest.approx(25.0)


def test_power_ramps_are_interpolated_at_the_edges():
    assert energy.trapezoid_joules([(0.0, 0.0), (10.0, 10.0)], 4.0, 6.0) == pytest.approx(10.0)


@pytest.mark.parametrize(("samples", "start", "end"), [([], 0, 1), ([(0.0, 1.0)], 1.0, 1.0)])
def test_no_evidence_is_an_error(samples, start, end):
    with pytest.raises(ValueError, match="at least one sample"):
        energy.trapezoid_joules(samples, start, end)


class Counter:
    """A sensor whose counter grows by a joule a reading; some readings may fail."""

    period_s = 3600.0

    def __init__(self, fails=()):
        self.reads = 0
        self.fails = fails

    def describe(self):
        return {"source": "fake", "quantity": "energy", "rails": ["all"], "boundary": "board"}

    def read(self):
        self.reads += 1
        if self.reads in self.fails:
            raise OSError("try again")
        return self.reads

    def joules(self, before, after):
        return float(after - before)


def window_of(sensor):
    window = energy.Window(sensor)
    window.start()
    window.stop()
    return window


def test_a_counter_window_is_the_difference_of_its_edges():
    window = window_of(Counter())
    # One joule between the two readings, scaled to the part of their span that the window is.
    assert 0 < window.joules() <= 1.0
    assert window.evidence["n_samples"] == 2


def test_a_window_with_a_failed_edge_has_no_energy():
    sensor = Counter(fails=(2,))
    window = window_of(sensor)
    assert window.joules() is None
    assert energy.record(sensor, window, 10, None)["kind"] == "unavailable"


class Fixed:
    """A finished window."""

    seconds = 10.0

    @property
    def evidence(self):
        return {"n_samples": 20, "n_dropped": 0, "duration_s": 10.0}

    def joules(self):
        return 100.0


def test_energy_of_a_run_is_gross_and_above_idle():
    record = energy.record(Counter(), Fixed(), 50, energy.Idle(4.0, 0.1))
    assert record["kind"] == "measured"
    assert record["gross_j"] == pytest.approx(2.0)
    assert record["above_idle_j"] == pytest.approx(1.2)
    assert record["source"] == "fake (all)"


def test_what_idle_could_explain_is_not_claimed():
    record = energy.record(Counter(), Fixed(), 50, energy.Idle(9.0, 0.5))
    assert record["above_idle_j"] is None
    assert record["reason"] == "not distinguishable from idle"


def test_without_idle_power_only_gross_is_known():
    record = energy.record(Counter(), Fixed(), 50, None)
    assert record["above_idle_j"] is None and not math.isnan(record["gross_j"])
    assert record["reason"] == "no idle power was taken"
