"""Energy from end to end, on a system tree with counters that the test turns."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from host.compare.entrants import ratio_between
from host.compare.runner import Effort, compare_sessions
from host.measure.kernels import measure_kernel
from host.statistics import MIN_TRIALS
from host.transport.local import connect_local

RANGE_UJ = 1_000_000_000


WATTS = 20.0


@pytest.fixture
def tree(tmp_path):
    """A machine with one package that draws 20 W all the time and wraps its counter once."""
    zone = tmp_path / "root/sys/class/powercap/intel-rapl:0"
    zone.mkdir(parents=True)
    (zone / "name").write_text("package-0\n")
    (zone / "max_energy_range_uj").write_text(f"{RANGE_UJ}\n")
    stop = threading.Event()
    # Written in one piece over what is there, as the kernel answers: the sensor keeps the file open.
    counter = os.open(zone / "energy_uj", os.O_WRONLY | os.O_CREAT)

    def turn():
        started = time.monotonic()
        while not stop.wait(0.005):
            microjoules = RANGE_UJ - 60_000_000 + (time.monotonic() - started) * WATTS * 1e6
            os.pwrite(counter, b"%020d\n" % (int(microjoules) % RANGE_UJ), 0)

    os.pwrite(counter, b"%020d\n" % (RANGE_UJ - 60_000_000), 0)
    thread = threading.Thread(target=turn)
    thread.start()
    yield tmp_path / "root"
    stop.set()
    thread.join()
    os.close(counter)


QUICK = {"min_time_s": 0.05, "min_repeats": 3, "warmup_s": 0.0, "energy_s": 1.0, "energy_updates": 5}


def test_a_sensor_gives_joules_of_a_run(store_dir, tree, bundle, golden):
    with connect_local(store_dir, system_root=tree) as device:
        assert device.sensor()["unavailable"] is None and device.sensor()["rails"] == ["package-0"]
        with device.open_session("tvm") as session:
            session.load(bundle)
            inputs = [golden["x"], golden["unused"]]
            measured = session.measure(inputs, idle_s=2.0, trials=3, **QUICK)
            energy = measured.energy
            assert energy.kind == "measured" and energy.source == "rapl (package-0)"
            assert energy.boundary == "package" and energy.rails == ("package-0",)
            # Over the wrap of the counter. A thread turns it, which may have to wait for a core: what it is
            # late with at the end of a window is missing, and what it makes up for at once looks like a peak.
            assert energy.mean_w == pytest.approx(WATTS, rel=0.2)
            assert energy.gross_j * energy.n_inferences == pytest.approx(energy.mean_w * energy.duration_s)
            assert (energy.trials, energy.n_dropped) == (3, 0) and energy.std_j is not None
            assert energy.idle_w == pytest.approx(WATTS, rel=0.2)
            # The counter knows of no work: what is above idle is noise, if anything.
            assert energy.above_idle_j is None or energy.above_idle_j < 0.4 * energy.gross_j
            assert len(energy.trace) >= 3 and not measured.throttled
            assert 0.8 * WATTS < energy.peak_w < 5 * WATTS
            assert measured.conditions["windows"] == 3
            assert len(helpers(session.pid)) == 1
            # Not asked for is not the same as zero.
            silent = session.measure(energy=False, **QUICK).energy
            assert silent.kind == "unavailable" and silent.gross_j is None


def test_a_kernel_has_joules_of_a_call(store_dir, tree, bundle):
    """Its calls are made in a loop, in two windows: the power is the board's, whatever a call takes."""
    with connect_local(store_dir, system_root=tree) as device, device.open_session("tvm") as session:
        check_a_kernel_in_joules(session, bundle)


def check_a_kernel_in_joules(session, bundle):
    """Of a session on a machine that draws `WATTS` all the time."""
    library, shapes = bundle / "lib.so", [((4, 32), "float32")] * 2
    measured = measure_kernel(session, library, "relu", shapes, repeat=3, min_repeat_ms=1.0, work={})
    energy = measured.energy
    assert energy.kind == "measured" and (energy.trials, energy.trace) == (2, ())
    # Each window is short, and a thread turns the counter that may have to wait for a core.
    assert energy.mean_w == pytest.approx(WATTS, rel=0.3)
    assert energy.gross_j * energy.n_inferences == pytest.approx(energy.mean_w * energy.duration_s)
    assert energy.std_j is not None and energy.n_inferences > 1000
    # A call takes as long as in the samples, so that none of the loop is something else than calls.
    assert energy.duration_s / energy.n_inferences < 20 * measured.median_s
    silent = measure_kernel(session, library, "relu", shapes, repeat=3, min_repeat_ms=1.0)
    assert silent.energy.kind == "unavailable" and silent.energy.gross_j is None


def test_energies_are_compared_in_interleaved_windows(store_dir, tree, bundle, golden, monkeypatch):
    with (
        connect_local(store_dir, system_root=tree) as device,
        device.open_session("tvm") as one,
        device.open_session("tvm") as two,
    ):
        for session in (one, two):
            session.load(bundle)
            shorten(session, monkeypatch)
        inputs = [golden["x"], golden["unused"]]
        effort = Effort(rounds=MIN_TRIALS, round_s=0.02, windows=MIN_TRIALS)
        result = compare_sessions({"one": one, "two": two}, inputs, effort)
        ratio = ratio_between(result["one"], result["two"], "energy")
        assert ratio.n == MIN_TRIALS and 0 < ratio.low <= ratio.value <= ratio.high
        assert result["one"].energy.gross_j > 0


def helpers(pid):
    """Processes that a process has started and that live."""
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_the_meter_ends_with_its_session(store_dir, tree, bundle, golden):
    with connect_local(store_dir, system_root=tree) as device:
        with device.open_session("tvm") as session:
            session.load(bundle)
            session.measure([golden["x"], golden["unused"]], idle_s=0.0, trials=1, **QUICK)
            children = helpers(session.pid)
        assert len(children) == 1
        until = time.monotonic() + 60
        while Path(f"/proc/{children[0]}").exists() and time.monotonic() < until:
            time.sleep(0.05)
        assert not Path(f"/proc/{children[0]}").exists()


def shorten(session, monkeypatch):
    """Energy windows of a test's length."""
    real = session.measure
    quick = {"energy_s": 0.5, "energy_updates": 3, "idle_s": 0.5}
    monkeypatch.setattr(session, "measure", lambda *given, **plan: real(*given, **{**plan, **quick}))


def test_without_a_sensor_there_is_a_reason(store_dir, tmp_path, bundle, golden):
    with connect_local(store_dir, system_root=tmp_path) as device:
        assert "no RAPL" in device.sensor()["unavailable"]
        with device.open_session("tvm") as session:
            session.load(bundle)
            effort = Effort(rounds=MIN_TRIALS, round_s=0.01)
            result = compare_sessions({"one": session}, [golden["x"], golden["unused"]], effort)
            energy = result["one"].energy
            assert energy.kind == "unavailable" and "no RAPL" in energy.source
            assert energy.gross_j is None and energy.above_idle_j is None
            assert "no RAPL" in result["one"].why_no_energy


def test_a_kernel_measured_by_a_throttled_device_is_marked(store_dir, tmp_path, faults):
    counter = tmp_path / "root/sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count"
    counter.parent.mkdir(parents=True)
    counter.write_text(f"{0:020d}\n")
    stop = threading.Event()

    def heat():
        descriptor = os.open(counter, os.O_WRONLY)
        count = 0
        while not stop.wait(0.001):
            count += 1
            os.pwrite(descriptor, b"%020d\n" % count, 0)
        os.close(descriptor)

    with (
        connect_local(store_dir, system_root=tmp_path / "root") as device,
        device.open_session("tvm") as session,
    ):
        arguments = [((4,), "float32")]
        cool = measure_kernel(session, faults, "fine", arguments, min_repeat_ms=1.0)
        assert cool.trusted and cool.conditions["retries"] == 0
        thread = threading.Thread(target=heat)
        thread.start()
        try:
            hot = measure_kernel(session, faults, "fine", arguments, min_repeat_ms=300.0)
        finally:
            stop.set()
            thread.join()
        # Measured once more, and still it throttled.
        assert hot.throttled and not hot.trusted and hot.conditions["retries"] == 1
        assert "cores throttled" in hot.throttle_reasons[0] and hot.times_s
        assert hot.state_after["throttle"]["core_throttle_count"] > 0
