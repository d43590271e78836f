from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from host.calibration import calibrated, calibration_path, load, save
from tests.unit.calibration.samples import MACHINE, board, calibration


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


def test_what_was_saved_is_used_and_said_so(tmp_path: Path) -> None:
    assert save(calibration()).is_relative_to(tmp_path)
    hardware, note = calibrated("desk", MACHINE, board())
    assert hardware == calibration().applied(board().hardware)
    assert note == "desk as calibrated on 2026-11-21"


def test_without_a_calibration_the_board_speaks() -> None:
    assert load("desk") is None
    assert calibrated("desk", MACHINE, board()) == (board().hardware, "")


def test_a_changed_board_refuses_the_old_calibration() -> None:
    save(calibration())
    hardware, note = calibrated("desk", replace(MACHINE, cpu_name="Another CPU"), board())
    assert hardware == board().hardware
    assert "another machine" in note
    assert "sdk devices calibrate desk" in note


def test_a_damaged_file_is_named_and_not_used() -> None:
    path = save(calibration())
    path.write_text(path.read_text()[:100])
    hardware, note = calibrated("desk", MACHINE, board())
    assert hardware == board().hardware
    assert str(path) in note
    assert "\n" not in note


def test_saving_replaces_and_leaves_no_scrap() -> None:
    save(calibration())
    path = save(replace(calibration(), peak_flops=100e9))
    found = load("desk")
    assert found is not None
    assert found.peak_flops == 100e9
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_name_with_slashes_stays_in_the_folder() -> None:
    assert calibration_path("../../x").parent == calibration_path("desk").parent
