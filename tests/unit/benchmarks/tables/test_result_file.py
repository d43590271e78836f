"""Result files: the heading that every benchmark writes, and what is refused when one is read."""

from __future__ import annotations

import json
import re
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from benchmarks import result_file
from benchmarks.result_file import RESULTS, ROOT, heading, models_so_far, read_result, write_result
from host.errors import UserError

CONTENT: dict[str, Any] = {
    "benchmark": "edgetlm.benchmark/1",
    "schema": "edgetlm.example/1",
    "command": "python -m benchmarks.example --json F",
    "date": "2026-11-22T13:26:44+00:00",
    "commit": "0123456789012345678901234567890123456789+",
    "machine": {"cpu": "a processor", "cores": 2, "versions": {"python": "3.11.7"}},
    "figures": {"a": 1.5},
}


def test_a_heading_says_where_when_and_by_what_the_figures_were_made(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "result.json"
    about = heading("benchmarks.example", "edgetlm.example/1", ["--only", "a b", "--json", "F"])
    write_result(path, about | {"seconds": [1.0]})
    result = read_result(path)
    assert result.command == "python -m benchmarks.example --only 'a b' --json F"
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout
    assert result.commit.removesuffix("+") == head.strip()
    assert result.cpu and result.cores >= 1
    assert {"python", "numpy", "apache-tvm"} <= set(result.versions)
    assert result.date.utcoffset() == timedelta(0)
    assert result.figures == {"seconds": [1.0]}
    assert [file.name for file in path.parent.iterdir()] == ["result.json"]


def test_paths_of_the_machine_are_left_out(tmp_path: Path) -> None:
    content = {"peer_errors": {"openvino": f"cannot load {Path.cwd()}/out/model.onnx: no such file"}}
    write_result(tmp_path / "result.json", content)
    written = json.loads((tmp_path / "result.json").read_text())
    assert written == {"peer_errors": {"openvino": "cannot load out/model.onnx: no such file"}}


def test_a_changed_tree_marks_the_commit_and_another_result_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", *words], cwd=tmp_path, check=True, capture_output=True)

    results = tmp_path / "benchmarks" / "results"
    results.mkdir(parents=True)
    (tmp_path / "source.py").write_text("a = 1\n")
    git("init")
    git("add", "source.py")
    git("-c", "user.name=test", "-c", "user.email=test@localhost", "commit", "-m", "first")
    monkeypatch.setattr(result_file, "ROOT", tmp_path)
    monkeypatch.setattr(result_file, "RESULTS", results)
    (results / "other.json").write_text("{}")
    assert not heading("benchmarks.example", "edgetlm.example/1")["commit"].endswith("+")
    (tmp_path / "source.py").write_text("a = 2\n")
    assert heading("benchmarks.example", "edgetlm.example/1")["commit"].endswith("+")


def test_nothing_is_written_where_no_file_was_asked_for() -> None:
    write_result(None, CONTENT)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"benchmark": "edgetlm.benchmark/2"}, "this version reads 'edgetlm.benchmark/1'"),
        ({"schema": "e2e"}, "schema is 'e2e'"),
        ({"command": None}, "command"),
        ({"date": "yesterday"}, "date is 'yesterday'"),
        ({"date": "2026-11-22T13:26:44"}, "a time zone"),
        ({"commit": "main"}, "commit is 'main'"),
        ({"machine": {"cpu": "a", "cores": 2}}, "versions is missing"),
        ({"machine": {"cpu": "a", "cores": 0, "versions": {}}}, "cores is 0"),
        ({"machine": {"cpu": "a", "cores": 2, "versions": {"python": 3}}}, "python is 3"),
        ({"remark": 1}, "remark is 1"),
    ],
)
def test_a_wrong_heading_is_refused(change: dict[str, Any], reason: str, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    write_result(path, CONTENT)
    assert read_result(path).figures == {"figures": {"a": 1.5}}
    write_result(path, CONTENT | change)
    with pytest.raises(UserError, match=reason):
        read_result(path)


@pytest.mark.parametrize("content", ["[]", "{", json.dumps({"figures": 1})])
def test_a_file_without_a_heading_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text(content)
    with pytest.raises(UserError, match=r"result\.json"):
        read_result(path)
    with pytest.raises(UserError, match="absent"):
        read_result(tmp_path / "absent.json")


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_committed_results_can_be_read(path: Path) -> None:
    result = read_result(path)
    assert result.commit and result.figures


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_committed_results_hold_no_paths_of_a_machine(path: Path) -> None:
    found = re.findall(r"(?<![\w./])/(?:home|root|tmp|work|var)/[^\s\"']*", path.read_text())
    assert not found, "python -m benchmarks.reproduce writes results without them"


@pytest.mark.parametrize(
    ("began", "goes_on", "is_same"),
    [
        ("--tasks 3 --json F", "--tasks 3 --json F --resume", True),
        ("--tasks 3 --minutes 30 --json F", "--tasks 3 --resume --minutes=5 --json F", True),
        ("--tasks 3 --json F", "--tasks 4 --json F --resume", False),
        ("--tasks 3 --json F", "--tasks 3 --json F --resume-all", False),
    ],
)
def test_what_was_measured_is_kept_whichever_run_says_that_it_goes_on(
    began: str, goes_on: str, is_same: bool, tmp_path: Path
) -> None:
    path = tmp_path / "result.json"
    start = "python -m benchmarks.example "
    path.write_text(json.dumps(CONTENT | {"command": start + began, "models": {"a": 1}}))
    wanted = {"command": start + goes_on, "commit": CONTENT["commit"]}
    assert models_so_far(path, wanted) == ({"a": 1} if is_same else {})
