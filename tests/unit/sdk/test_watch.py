"""The command line of `sdk watch`: what it prints, its exit codes, and what it refuses."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
import typer

import sdk.management.watch as management
from host.calibration.drift import Change
from host.commands.deployed_models import DeployedModel
from host.commands.watch import Watched, WatchOptions
from host.devices import DeviceEntry, Registry
from host.errors import EdgeError
from host.statistics import Estimate
from sdk.cli.main import Interrupted, build_app, main

SLOWER = Change("stream", Estimate(1.081, 1.072, 1.09, 12))
SAME = Change("stream", Estimate(1.004, 0.998, 1.01, 12))
MODEL = DeployedModel(
    "net",
    "a" * 64,
    Estimate(0.002, 0.0019, 0.0021, 10),
    Estimate(1.2, 1.1, 1.3),
    "b" * 64,
    Estimate(1.1, 1.05, 1.2),
)
STEADY = Watched("local", "steady", (SAME,), since=1.76e9)
DRIFTED = Watched(
    "local", "drifted", (SLOWER,), ("kernel 6.1 -> 6.6",), "stream takes 8.1% longer", 1.76e9, 7, (MODEL,)
)
FAILED = Watched("local", "failed", reason="local: its agent went away")


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[Watched]:
    rows: list[Watched] = []
    monkeypatch.setattr(management, "watch", lambda names, options, progress: tuple(rows))
    return rows


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ([STEADY], 0),
        ([Watched("local", "begun", since=1.76e9)], 0),
        ([Watched("local", "accepted", since=1.76e9)], 0),
        ([STEADY, FAILED], 1),
        ([DRIFTED], 3),
        ([FAILED, DRIFTED], 3),
    ],
)
def test_the_exit_code_says_what_was_found(found: list[Watched], rows: list[Watched], code: int) -> None:
    found.extend(rows)
    assert main(["watch", "local", "--once"]) == code


def test_a_drift_is_told_with_the_next_step(found: list[Watched], capsys: pytest.CaptureFixture[str]) -> None:
    found.append(DRIFTED)
    assert main(["watch", "local", "--once"]) == 3
    text = capsys.readouterr().out
    assert "stream takes 8.1% longer; now stream takes 8.1% longer (1.072 to 1.090); 7 records" in text
    assert "net: 2.000 ms, 1.200 times as long as at its installation (1.100 to 1.300): slower" in text
    assert "1.100 times as long as version bbbbbbbbbbbb (1.050 to 1.200)" in text
    assert "next: sdk rollback net --device local, or sdk watch with --rollback" in text
    assert "sdk watch local --once --accept" in text


def test_rows_for_programs_have_all_figures(found: list[Watched], capsys: pytest.CaptureFixture[str]) -> None:
    found.extend([DRIFTED, FAILED])
    assert main(["watch", "local", "--once", "-o", "json"]) == 3
    first, second = json.loads(capsys.readouterr().out)
    assert first == {
        "device": "local",
        "status": "drifted",
        "program": "stream",
        "ratio": 1.081,
        "low": 1.072,
        "high": 1.09,
        "system": "kernel 6.1 -> 6.6",
        "since": "2025-10-09T08:53:20+00:00",
        "records": 7,
        "models": 1,
        "slower": "net",
        "earlier_faster": "net",
        "rolled_back": None,
        "reason": "stream takes 8.1% longer",
    }
    assert second["status"] == "failed" and second["program"] is None
    assert main(["watch", "local", "--once", "-o", "csv"]) == 3
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["status"] for row in rows] == ["drifted", "failed"]


def test_a_wrong_date_of_a_stranger_is_a_text(
    found: list[Watched], capsys: pytest.CaptureFixture[str]
) -> None:
    found.append(Watched("local", "steady", (SAME,), since=1e300))
    assert main(["watch", "local", "--once"]) == 0
    assert "an unknown date" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere", "--once"], "no device is called 'nowhere'"),
        (["local", "--once", "--every", "6h"], "give one of them"),
        (["local", "--accept"], "give --once with it"),
        (["local", "--every", "5s"], "give a minute at least"),
        (["local", "--every", "soon"], "write a time as"),
        (["local", "--once", "--wait", "soon"], "--wait soon"),
    ],
)
def test_what_cannot_be_is_a_mistake_of_the_command(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["watch", *words]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_a_shell_completes_names_and_tags_of_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    Registry().add(DeviceEntry("kitchen", "ssh", "192.0.2.1", tags=("lab",)))
    root = typer.main.get_command(build_app())
    watch = root.commands["watch"]  # type: ignore[attr-defined]
    context = watch.context_class(watch, info_name="watch")
    [devices] = [one for one in watch.params if one.name == "devices"]

    def completed(begun: str) -> set[str]:
        return {one.value for one in devices.shell_complete(context, begun)}

    assert completed("ki") == {"kitchen"} and completed("tag:") == {"tag:lab"}
    assert completed("lo") == {"local"} and completed("x") == set()


def test_it_goes_on_after_a_pause_whatever_was_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers: list[object] = [(DRIFTED,), EdgeError("the server is away"), (STEADY,), Interrupted()]
    asked: list[WatchOptions] = []
    pauses: list[float] = []

    def answer(names: object, options: WatchOptions, progress: object) -> object:
        asked.append(options)
        one = answers[len(asked) - 1]
        if isinstance(one, BaseException):
            raise one
        return one

    monkeypatch.setattr(management, "watch", answer)
    monkeypatch.setattr("sdk.cli.management.watch.time.sleep", pauses.append)
    assert main(["watch", "local", "--every", "2h", "--wait", "1m", "--rollback"]) == 130
    said = capsys.readouterr()
    assert "drifted" in said.out and "steady" in said.out
    assert said.err == "error: the server is away\nerror: interrupted\n"
    assert pauses == [7200.0] * 3
    assert {(one.wait_s, one.rollback, one.accept) for one in asked} == {(60.0, True, False)}
