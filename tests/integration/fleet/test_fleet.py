"""`--device left,right` and `--device tag:kitchen` on real agents."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from host.commands.tune import tune_model
from host.deploy import DeployOptions
from host.errors import UserError
from host.places import records_file
from host.progress import Silence
from host.records import Record, RecordStore
from sdk.cli.main import main
from tests.integration.fleet.conftest import LocalFleet
from tests.integration.test_tuning import perceptron, references, trials_of


def records() -> list[Record]:
    with RecordStore(records_file()) as store:
        return list(store)


def of_device(some: list[Record], name: str) -> list[Record]:
    return [one for one in some if one.origin.device == name]


def test_a_tag_measures_one_job_on_all_its_boards(
    tmp_path: Path, boards: LocalFleet, capsys: pytest.CaptureFixture[str]
) -> None:
    model = perceptron(tmp_path / "net.onnx")
    command = [
        "tune",
        str(model),
        "--threads",
        "1",
        "--trials",
        "12",
        "--device",
        "tag:kitchen",
        "--no-train",
    ]
    assert main([*command, "--json", str(tmp_path / "t.json")]) == 0
    kept = records()
    # The reference of each task counts against no budget.
    tasks = references(kept)
    assert len(kept) == len(trials_of(kept)) == 12 + tasks
    assert of_device(kept, "left")
    assert of_device(kept, "right")
    figures = json.loads((tmp_path / "t.json").read_text())
    assert (figures["trials"], figures["measured_now"]) == (12, 12 + tasks)
    assert all(not one.failure for one in kept), [one.failure for one in kept]
    # Two agents of one machine are of one kind, so one's records serve the other.
    capsys.readouterr()
    assert main([*command[:-3], "--device", "left", "--no-train", "--json", str(tmp_path / "u.json")]) == 0
    assert json.loads((tmp_path / "u.json").read_text())["measured_now"] == 0


class Saboteur(Silence):
    """Cuts the power of a board in the middle, and gives it back later.

    Attributes:
        notes: what was told.
    """

    def __init__(self, boards: LocalFleet, name: str) -> None:
        self.notes: list[str] = []
        self._boards = boards
        self._name = name
        self._cut = False

    def advance(self, done: int, total: int) -> None:
        # Programs that count against no budget leave the number as it is.
        if (done, total) == (4, 16) and not self._cut:
            self._cut = True
            self._boards.out.add(self._name)
            assert self._boards.kill(self._name)
        if (done, total) == (9, 16):
            self._boards.out.clear()

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.mark.parametrize("victim", [pytest.param("left", marks=pytest.mark.long), "right"])
def test_a_board_that_loses_its_power_loses_only_its_turn(
    tmp_path: Path, boards: LocalFleet, victim: str
) -> None:
    options = DeployOptions(
        perceptron(tmp_path / "net.onnx"), threads=1, trials=16, train=False, device="left,right"
    )
    saboteur = Saboteur(boards, victim)
    result = tune_model(options, saboteur)
    kept = records()
    tasks = references(kept)
    assert result.tuning.trials == len(kept) - tasks == len(trials_of(kept)) - tasks == 16
    assert not [one.failure for one in kept if one.failure]
    other = {"left": "right", "right": "left"}[victim]
    assert len(of_device(kept, other)) >= 5, "the other went on"
    assert [text for text in saboteur.notes if text.startswith(victim) and "trying to reach it" in text]


def test_a_board_that_does_not_answer_at_the_start_is_done_without(
    tmp_path: Path, boards: LocalFleet
) -> None:
    boards.out.add("left")
    model = perceptron(tmp_path / "net.onnx")
    options = DeployOptions(model, threads=1, trials=4, train=False, device="left,right")
    saboteur = Saboteur(boards, "nobody")
    assert tune_model(options, saboteur).tuning.trials == 4
    assert {one.origin.device for one in records()} == {"right"}
    assert "left: no route to host; look at its cable; the others begin without it" in saboteur.notes


def test_a_board_that_never_comes_back_is_replaced_at_the_end_too(tmp_path: Path, boards: LocalFleet) -> None:
    class Gone(Saboteur):
        def advance(self, done: int, total: int) -> None:
            if (done, total) == (4, 12):
                super().advance(4, 16)

    options = DeployOptions(
        perceptron(tmp_path / "net.onnx"), threads=1, trials=12, train=False, device="left,right"
    )
    saboteur = Gone(boards, "left")
    result = tune_model(options, saboteur)
    assert result.tuning.trials == 12
    assert result.power is not None, "the tuned model was measured on the other board"
    assert "left does not answer: right goes on in its place" in saboteur.notes


def test_boards_of_two_kinds_are_refused_with_the_reason(
    tmp_path: Path, boards: LocalFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    from host.transport import Device

    described = Device.describe

    def describe(device: Device) -> object:
        machine = described(device)
        return machine if device.name == "left" else replace(machine, cores=machine.cores + 1)

    monkeypatch.setattr(Device, "describe", describe)
    options = DeployOptions(perceptron(tmp_path / "net.onnx"), threads=1, trials=4, device="left,right")
    with pytest.raises(UserError, match="left and right are not of one kind: number of cores"):
        tune_model(options)


def test_a_fleet_gets_one_bundle_and_a_table(
    tmp_path: Path, boards: LocalFleet, capsys: pytest.CaptureFixture[str]
) -> None:
    model = perceptron(tmp_path / "net.onnx")
    command = ["deploy", str(model), "--threads", "1", "--backend", "tvm", "--device", "left,right"]
    assert main([*command, "--json", str(tmp_path / "d.json")]) == 0
    figures = json.loads((tmp_path / "d.json").read_text())
    assert [one["device"] for one in figures["devices"]] == ["left", "right"]
    left, right = figures["devices"]
    assert left["version"] == right["version"] != ""
    assert left["median_s"] > 0 < right["median_s"]
    assert len(figures["kinds"]) == 1
    assert "2 of 2 devices run it" in capsys.readouterr().out
    [report] = (Path("edgetlm-out") / "net").glob("report-*.html")
    assert report.stat().st_size > 1000
    for name in ("left", "right"):
        with host_device(boards, name) as device:
            assert [(one["name"], one["active"]) for one in device.bundles()] == [("net", True)]


def host_device(boards: LocalFleet, name: str):  # type: ignore[no-untyped-def]
    from host.transport import connect

    boards.out.discard(name)
    return connect(name)


@pytest.mark.parametrize("victim", [pytest.param("left", marks=pytest.mark.long), "right"])
def test_one_failing_board_does_not_undo_the_others(
    tmp_path: Path, boards: LocalFleet, victim: str, capsys: pytest.CaptureFixture[str]
) -> None:
    boards.out.add(victim)
    model = perceptron(tmp_path / "net.onnx")
    command = ["deploy", str(model), "--threads", "1", "--backend", "tvm", "--device", "left,right"]
    assert main(command) == 1
    out = capsys.readouterr().out
    assert f"{victim:<5}" in out
    assert "FAILED  " + victim + ": no route to host; look at its cable" in out
    assert "1 of 2 devices run it" in out
    other = {"left": "right", "right": "left"}[victim]
    with host_device(boards, other) as device:
        assert [one["active"] for one in device.bundles()] == [True]
