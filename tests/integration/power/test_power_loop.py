"""Deployments by energy on a board of known truth: choice, modes, cap, throttling, report and comparison."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import sdk
from host.compare.power_modes import ModeSwitch, current_modes, list_modes, settings_of
from host.execution.cores import usable_cores
from host.places import records_file
from host.records import RecordStore
from host.transport import connect
from sdk.cli.main import main
from tests.browser import drawn, page_in_browser
from tests.integration import small_models

# All cores at work at full clock; three quarters of the clock leave 2.0 + 4.0 * 0.75^2 W.
IDLE_W = 2.0
SECONDS = {"tvm": 0.040, "onnxruntime": 0.060}
TRUTH = {1.0: 6.0, 0.75: 4.25}

# Kernels are slow, so that a window of measuring holds few calls of a small one: each is simulated.
BOARD = """
schema = "edgetlm-replay/1"
seed = 3
[machine]
frequency_hz = 2.0e9
frequencies_hz = [1.5e9]
[latency]
factor = 100.0
spread = 0.002
models = [{{name = "tvm", seconds = 0.040}}, {{name = "onnxruntime", seconds = 0.060}}]
[power]
idle_w = 2.0
active_w = 6.0
exponent = 2.0
noise_w = 0.02
[thermal]
limit_c = {limit_c}
recover_c = {recover_c}
"""


def board(folder: Path, limit_c: float = 95.0) -> str:
    """A device out of a file."""
    path = folder / "board.toml"
    path.write_text(BOARD.format(limit_c=limit_c, recover_c=limit_c - 0.5))
    return f"replay:{path}"


def deployed(folder: Path, *options: str, name: str = "out") -> tuple[int, dict[str, Any], Path]:
    """Exit code, figures and report of `sdk deploy`."""
    model = small_models.convnet(folder / "net.onnx")
    figures, report = folder / f"{name}.json", folder / f"{name}.html"
    command = ["deploy", str(model), "--backend", "tvm", "--json", str(figures), "--report", str(report)]
    code = main([*command, *options])
    return code, json.loads(figures.read_text()) if figures.is_file() else {}, report


def test_the_front_of_a_board_is_its_truth(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    device = board(tmp_path)
    options = ["--device", device, "--power-modes", "cpu-75%", "--threads", "0", "--objective", "latency"]
    code, figures, report = deployed(tmp_path, *options)
    assert code == 0, capsys.readouterr().err
    power = figures["power"]
    assert len(power["front"]) == 2
    for point in power["points"]:
        speed = 0.75 if point["mode"] == "cpu-75%" else 1.0
        seconds, watts = SECONDS["tvm"] / speed, TRUTH[speed]
        assert point["latency_ms"]["value"] == pytest.approx(seconds * 1e3, rel=0.01)
        assert point["gross_mj"]["value"] == pytest.approx(watts * seconds * 1e3, rel=0.02)
        assert point["net_mj"]["value"] == pytest.approx((watts - IDLE_W) * seconds * 1e3, rel=0.02)
        assert point["mean_w"] == pytest.approx(watts, rel=0.02)
        assert (point["kind"], point["boundary"], point["throttled"]) == ("simulated", "board", False)
        assert point["gross_mj"]["low"] < point["gross_mj"]["value"] < point["gross_mj"]["high"]
    assert "taken     " in capsys.readouterr().out
    page = page_in_browser(report, tmp_path / "profile")
    assert drawn(page, "front", "point") >= 3
    assert drawn(page, "power", "line") >= 3
    assert drawn(page, "temperature", "line") == 1
    # A result is no worse than itself, as data, as a page and as a bundle.
    sides = [str(tmp_path / "out.json"), str(report), figures["bundle"]]
    for before, after in pairwise(sides):
        assert main(["report", "compare", before, after]) == 0


def test_modes_of_a_real_agent_are_set_and_put_back(tmp_path: Path) -> None:
    with connect(board(tmp_path)) as device:
        modes = list_modes(device)
        assert current_modes(modes) == "performance, cpu-100%"
        [_, *others] = settings_of(modes, ("all",), device.name)
        assert [setting.name for setting in others] == ["powersave", "cpu-75%"]
        for setting in others:
            with pytest.raises(ZeroDivisionError), ModeSwitch(device, modes, print) as switch:
                switch.set(setting)
                assert setting.name in current_modes(list_modes(device))
                raise ZeroDivisionError
            assert current_modes(list_modes(device)) == current_modes(modes)


def test_a_cap_that_no_variant_keeps_names_the_closest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    device = board(tmp_path)
    code, figures, _ = deployed(tmp_path, "--device", device, "--power-cap", "2.5", "--threads", "1")
    printed = capsys.readouterr().err
    assert (code, figures) == (1, {})
    assert "--power-cap 2.5: no variant stays below it; the closest is fastest programs, 1 thread" in printed
    assert "at the board boundary" in printed and printed.count("\n") == 1


def test_a_board_that_throttles_is_marked_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # 6 W heat it to 43 degrees in the end; it begins at 31 and is slowed down from 32 on.
    device = board(tmp_path, limit_c=32.0)
    code, figures, report = deployed(tmp_path, "--device", device, "--power-cap", "9", "--threads", "0")
    assert code == 0, capsys.readouterr().err
    assert all(point["throttled"] for point in figures["power"]["points"])
    assert figures["power"]["no_front"] == "the board throttled in every measurement"
    html = report.read_text()
    assert "The board throttled while this was measured" in html
    assert main(["report", "compare", str(tmp_path / "out.json"), str(tmp_path / "out.json")]) == 0
    assert "the board throttled in" in capsys.readouterr().out


def test_energy_that_cannot_be_measured_is_refused_before_any_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with sdk.connect("local") as device:
        reason = device.sensor()["unavailable"]
    # A machine with a sensor has none of this to refuse.
    for option in ("--objective=energy", "--objective=edp", "--power-cap=5") if reason else ():
        code, figures, _ = deployed(tmp_path, option, "--threads", "1")
        printed = capsys.readouterr()
        assert (code, figures) == (1, {})
        assert option.split("=")[0] in printed.err and "cannot measure it" in printed.err
        assert "build" not in printed.out
    model = small_models.convnet(tmp_path / "net.onnx")
    assert main(["deploy", str(model), "--device", board(tmp_path), "--power-modes", "turbo"]) == 2
    assert "has no such mode; it has performance" in capsys.readouterr().err


def test_a_tuning_ends_with_before_and_after(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = small_models.convnet(tmp_path / "net.onnx")
    figures, report = tmp_path / "tuned.json", tmp_path / "tuned.html"
    command = [
        "tune",
        str(model),
        "--device",
        board(tmp_path),
        "--threads",
        "1",
        "--trials",
        "4",
        "--no-train",
    ]
    command += ["--objective", "edp", "--json", str(figures), "--report", str(report)]
    assert main(command) == 0, capsys.readouterr().err
    printed = capsys.readouterr().out
    assert "gain      untuned / tuned = 1.00" in printed, "both take what the board's file says"
    content = json.loads(figures.read_text())
    assert content["schema"] == "edgetlm.tune/2"
    power = content["power"]
    assert power["objective"] == "edp"
    assert {point["variant"] for point in power["points"]} >= {"fastest programs", "untuned"}
    assert power["gain"]["low"] <= 1.0 <= power["gain"]["high"]
    assert power["energy_gain"]["value"] == pytest.approx(1.0, abs=0.02)
    page = page_in_browser(report, tmp_path / "profile")
    assert drawn(page, "tuned-kernels", "bar") >= 2
    assert drawn(page, "joules", "bar") == len(power["points"])
    assert "Before and after tuning, interleaved in this run" in page
    # Its heavy kernels have joules on record, from windows of their own, and so has each program of them.
    with RecordStore(records_file()) as store:
        energies = [one.measurement.energy for one in store]
    measured = [one for one in energies if one.kind == "simulated"]
    assert len(measured) >= 4
    # Two cores at work take 6 W, and one takes 4 W.
    truth = IDLE_W + (6.0 - IDLE_W) / usable_cores()
    assert [one.mean_w for one in measured] == [pytest.approx(truth, rel=0.03)] * len(measured)
    assert all(one.trials == 2 and one.gross_j > 0 and not one.trace for one in measured)
