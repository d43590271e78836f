from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import host.calibration.procedure as procedure
from host.calibration import Calibration, calibration_path, save
from host.compile.device_profile import profile_of
from host.transport import connect
from sdk.cli.main import main


def test_a_calibrated_device_is_measured_stored_and_used() -> None:
    with connect("local") as device:
        found = procedure.measure(device)
        assert [level.name for level in found.levels] == [
            level.name for level in profile_of(device, 1).board.hardware.levels
        ]
        assert found.frequency_hz > 1e8
        assert found.peak_flops > found.frequency_hz
        assert all(level.bandwidth_bytes_per_s > 1e8 and level.latency_s > 0 for level in found.levels)
        assert len(found.curve) > 4
        notes: list[str] = []
        before = profile_of(device, 1, notes.append)
        assert before.hardware.source != "calibrated"
        assert notes == []
        save(found)
        after = profile_of(device, 1, notes.append)
        assert after.hardware == found.applied(before.board.hardware)
        assert notes == [f"local as calibrated on {found.date[:10]}"]
        save(replace(found, machine="another"))
        assert profile_of(device, 1, notes.append).hardware == before.hardware
        assert "another machine" in notes[-1]


def test_the_command_keeps_what_makes_sense(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # How a machine in use behaves is no subject of this test: its figures are made plausible, or not.
    monkeypatch.setattr(Calibration, "complaints", lambda *_: [])
    assert main(["devices", "calibrate", "local"]) == 0
    printed = capsys.readouterr().out
    assert "GFLOP/s" in printed
    assert str(calibration_path("local")) in printed
    kept = json.loads(calibration_path("local").read_text())
    assert kept["device"] == "local"
    assert main(["devices", "list"]) == 0
    assert "as calibrated on" in capsys.readouterr().out
    monkeypatch.setattr(Calibration, "complaints", lambda *_: ["L3 faster than L2"])
    monkeypatch.setattr(procedure, "measure", lambda *_: Calibration.from_json(kept))
    assert main(["devices", "calibrate", "local"]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "L3 faster than L2" in error
    assert "is not stored" in error
    assert json.loads(calibration_path("local").read_text()) == kept


def test_an_unknown_device_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["devices", "calibrate", "nowhere"]) == 2
    assert "no device is called 'nowhere'" in capsys.readouterr().err
