"""`edgetlm.toml`: found upwards, weaker than what is typed, and refused by file and key where it is wrong."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import sdk.api
from host.options import DeployOptions
from host.settings_file import LARGEST_BYTES
from sdk.cli.main import main

_PROJECT = """
model = "models/net.onnx"
device = "pi5"
trials = 20
budget = "90s"
train = false
shape = ["x=1,3", "seq=16"]
peer = "litert"
peer-file = ["ncnn=peers"]
power-modes = ["15W", "MAXN"]
records = "postgresql://bob:hunter2@host/records"

[gates]
min-speedup = 1.1
max-bundle = "2K"
"""


class _Called(Exception):
    """Ends a command where it calls the API."""


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, Any]]:
    """Model and options of each deployment, profile and compilation that a command asked for."""
    found: list[tuple[Path, Any]] = []

    def record(model: Path, options: Any = None, **others: Any) -> None:
        found.append((model, options if options is not None else others))
        raise _Called

    for name in ("deploy", "tune", "compile", "profile"):
        monkeypatch.setattr(sdk.api, name, record)
    monkeypatch.setattr("sys.argv", ["sdk", "deploy"])
    return found


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a project, the working folder."""
    (tmp_path / "edgetlm.toml").write_text(_PROJECT)
    (tmp_path / "peers").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_command_without_arguments_takes_all_from_the_file(
    project: Path, calls: list[tuple[Path, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    main(["deploy"])
    [(model, options)] = calls
    assert model == Path("models/net.onnx")
    assert isinstance(options, DeployOptions)
    assert (options.device, options.trials, options.budget_s, options.train) == ("pi5", 20, 90.0, False)
    assert options.shapes == {"x": (1, 3), "seq": (16,)}
    assert (options.peers, options.peer_files) == (("litert",), {"ncnn": Path("peers")})
    assert options.power_modes == ("15W", "MAXN")
    assert (options.min_speedup, options.max_bundle_bytes, options.max_error) == (1.1, 2048, None)
    assert "project   edgetlm.toml gives model, " in capsys.readouterr().out


def test_what_is_typed_wins_and_a_list_replaces_the_list(
    project: Path, calls: list[tuple[Path, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    main(["deploy", "--device", "local", "--train", "--shape", "seq=8", "--max-bundle", "1M"])
    [(_, options)] = calls
    assert (options.device, options.train, options.trials) == ("local", True, 20)
    assert options.shapes == {"seq": (8,)}
    assert options.max_bundle_bytes == 1 << 20
    [given] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("project")]
    assert "trials" in given and "device" not in given and "shape" not in given


def test_the_environment_wins_over_the_file(
    project: Path, calls: list[tuple[Path, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGETLM_RECORDS", "own.db")
    main(["tune"])
    assert calls[0][1].records == "own.db"


def test_paths_begin_at_the_folder_of_the_file(
    project: Path, calls: list[tuple[Path, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    below = project / "deep" / "er"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    main(["deploy"])
    [(model, options)] = calls
    assert model.resolve() == (project / "models" / "net.onnx").resolve()
    assert options.peer_files["ncnn"].resolve() == (project / "peers").resolve()
    assert options.records == "postgresql://bob:hunter2@host/records"


def test_another_model_gets_neither_shapes_nor_gates_of_this_one(
    project: Path, calls: list[tuple[Path, Any]]
) -> None:
    main(["deploy", "other.onnx"])
    main(["deploy", "./models/net.onnx"])
    other, own = (options for _, options in calls)
    assert (other.device, other.trials) == (own.device, own.trials) == ("pi5", 20)
    assert (other.shapes, other.peers, other.min_speedup) == ({}, None, None)
    assert own.shapes and own.min_speedup


def test_each_command_takes_what_it_has(project: Path, calls: list[tuple[Path, Any]]) -> None:
    main(["profile", "--threads", "2"])
    main(["compile", "-o", "out", "--memory-cap", "1M"])
    profiled, compiled = (options for _, options in calls)
    assert (profiled["device"], profiled["threads"]) == ("pi5", 2)
    assert profiled["shapes"] == compiled.shapes == {"x": (1, 3), "seq": (16,)}


def test_the_recorded_command_can_be_typed_elsewhere(project: Path, calls: list[tuple[Path, Any]]) -> None:
    main(["deploy"])
    command = calls[0][1].command
    assert command.startswith("sdk deploy models/net.onnx ")
    assert "--no-train" in command and "--shape x=1,3 --shape seq=16" in command
    assert "--min-speedup 1.1" in command
    assert "hunter2" not in command


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("devise = 'pi5'", "no key 'devise', did you mean 'device'? use "),
        ("max-error = 1e-4", "max-error belongs in the table [gates]"),
        ("[gates]\ndevice = 'x'", "[gates] device belongs at the top of the file"),
        ("[gates]\nmax-latency = 5", "no key 'max-latency', did you mean 'max-latency-ms'?"),
        ("gates = 3", "gates: write it as a table"),
        ("trials = 'many'", "trials: give a whole number, not 'many'"),
        ("trials = true", "trials: give a whole number, not True"),
        ("train = 1", "train: give true or false, not 1"),
        ("power-cap = '10'", "power-cap: give a number, not '10'"),
        ("power-cap = inf", "--power-cap inf: give watts above 0"),
        ("model = 3", "model: give a text, not 3"),
        ("device = ['a', 'b']", "device: give a text, not ['a', 'b']"),
        ("shape = ['x=1', 2]", "shape: give a text or a list of texts"),
        ("shape = 'x=1,b'", "shape: --shape x=1,b: write it as NAME=1,128"),
        ("budget = '3'", "budget: --budget 3: write a time as 90s"),
        ("objective = 'fun'", "no objective 'fun': use latency, energy, edp"),
        ("threads = -1", "--threads -1: give a positive number"),
        ("[gates]\nmax-error = nan", "--max-error nan: give a number above 0"),
        ("[gates]\nmin-speedup = 0", "--min-speedup 0: give a number above 0"),
        ("model = [", "cannot be read"),
        ("x = '" + "a" * LARGEST_BYTES + "'", "cannot be read (it has more than"),
        ('"\\u001b[31m" = 1', "no key '\\x1b[31m'"),
    ],
)
def test_a_wrong_file_is_one_line_with_the_file_and_the_key(
    text: str,
    words: str,
    tmp_path: Path,
    calls: list[tuple[Path, Any]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "edgetlm.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert main(["deploy", "net.onnx"]) == 2
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1 and printed.startswith("error: edgetlm.toml")
    assert words in printed
    assert calls == []


def test_a_wrong_file_stands_in_the_way_of_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "edgetlm.toml").write_text("nonsense")
    monkeypatch.chdir(tmp_path)
    assert main(["deploy", "--help"]) == 0
    assert "--min-speedup" in capsys.readouterr().out
    assert main(["targets"]) == 0


def test_a_file_of_another_user_counts_only_in_its_own_folder(
    project: Path,
    calls: list[tuple[Path, Any]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if os.geteuid() == 0:
        os.chown(project / "edgetlm.toml", 54321, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    main(["deploy"])
    assert len(calls) == 1
    (project / "below").mkdir()
    monkeypatch.chdir(project / "below")
    capsys.readouterr()
    assert main(["deploy"]) == 2
    assert "../edgetlm.toml belongs to another user" in capsys.readouterr().err
    assert len(calls) == 1


def test_a_folder_above_that_may_not_be_searched_has_no_file(
    tmp_path: Path, calls: list[tuple[Path, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "edgetlm.toml").write_text("trials = 7")
    monkeypatch.chdir(tmp_path / "below")
    is_file = Path.is_file

    def refused(path: Path) -> bool:
        if path == tmp_path / "edgetlm.toml":
            raise PermissionError(13, "Permission denied", str(path))
        return is_file(path)

    main(["deploy", "net.onnx"])
    monkeypatch.setattr(Path, "is_file", refused)
    main(["deploy", "net.onnx"])
    assert [options.trials for _, options in calls] == [7, 0]
