"""Energy from end to end, on a system tree with counters that the test turns."""

from __future__ import annotations

import threading

import pytest

from host.errors import MeasureError
from host.measure.paired import MIN_ROUNDS, compare
from host.transport.local import connect_local

RANGE_UJ = 1_000_000_000


@pytest.fixture
def tree(tmp_path):
    """A machine with one package that draws some power all the time and wraps its counter once."""
    zone = tmp_path / "root/sys/class/powercap/intel-rapl:0"
    zone.mkdir(parents=True)
    (zone / "name").write_text("package-0\n")
    (zone / "max_energy_range_uj").write_text(f"{RANGE_UJ}\n")
    (zone / "energy_uj").write_text("0\n")
    stop = threading.Event()

    def turn():
        value = RANGE_UJ - 3_000_000
        while not stop.wait(0.01):
            value = (value + 200_000) % RANGE_UJ
            # Replaced whole: a reader must not meet an empty file.
            (zone / "next").write_text(f"{value}\n")
            (zone / "next").replace(zone / "energy_uj")

    thread = threading.Thread(target=turn)
    thread.start()
    yield tmp_path / "root"
    stop.set()
    thread.join()


QUICK = {"min_time_s": 0.05, "min_repeats": 3, "warmup_s": 0.0, "energy_s": 0.4}


def test_a_sensor_gives_joules_of_a_run(store_dir, tree, bundle, golden):
    with connect_local(store_dir, system_root=tree) as device:
        assert device.sensor()["unavailable"] is None and device.sensor()["rails"] == ["package-0"]
        with device.open_session("tvm") as session:
            session.load(bundle)
            inputs = [golden["x"], golden["unused"]]
            energy = session.measure(inputs, idle_s=0.2, **QUICK).energy
            assert energy.kind == "measured" and energy.source == "rapl (package-0)"
            assert energy.boundary == "package" and energy.gross_j > 0
            # Not asked for is not the same as zero.
            silent = session.measure(energy=False, **QUICK).energy
            assert silent.kind == "unavailable" and silent.gross_j is None


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
        result = compare({"one": one, "two": two}, inputs, MIN_ROUNDS, 0.02, energy_rounds=MIN_ROUNDS)
        ratio = result.energy_ratio("one", "two")
        assert ratio.rounds == MIN_ROUNDS and 0 < ratio.low <= ratio.value <= ratio.high
        assert result.measurements["one"].energy.gross_j > 0


def shorten(session, monkeypatch):
    """Energy windows of a test's length."""
    real = session.measure
    quick = {"energy_s": 0.3, "idle_s": 0.1}
    monkeypatch.setattr(session, "measure", lambda *given, **plan: real(*given, **{**plan, **quick}))


def test_without_a_sensor_there_is_a_reason(store_dir, tmp_path, bundle, golden):
    with connect_local(store_dir, system_root=tmp_path) as device:
        assert "no RAPL" in device.sensor()["unavailable"]
        with device.open_session("tvm") as session:
            session.load(bundle)
            result = compare({"one": session}, [golden["x"], golden["unused"]], MIN_ROUNDS, 0.01)
            energy = result.measurements["one"].energy
            assert energy.kind == "unavailable" and "no RAPL" in energy.source
            assert energy.gross_j is None and energy.above_idle_j is None
            with pytest.raises(MeasureError, match="no RAPL"):
                result.energy_ratio("one", "one")
