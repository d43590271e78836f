"""The benchmark of construction says how near a program is to the best of random ones."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.construction import __main__ as benchmark
from benchmarks.construction.__main__ import Construction, Known, constructed, summary
from benchmarks.result_file import HEADING, read_result
from benchmarks.tables.operators import construction
from host.model import DeviceProfile
from host.schedules import space_for
from tests.unit.schedules import functions as fn

BOARD = fn.board()
PROFILE = DeviceProfile("test", BOARD, BOARD.hardware, 1)


def test_a_construction_is_judged_by_random_programs_of_its_space() -> None:
    space = space_for(fn.task(fn.dense(198, 384, 1536)), BOARD.hardware, 1)
    found = constructed(space, PROFILE, "a/dense", 200)
    assert found is not None
    assert found.task == "a/dense" and found.rule == "tiled"
    assert 0.98 <= found.ratio <= 1.0 and found.seconds > 0.0


def test_the_summary_names_the_task_that_is_farthest_from_the_best() -> None:
    figures = summary([Construction("a", "tiled", 1.0, 0.1), Construction("b", "tiled", 0.81, 0.3)])
    assert figures["tasks"] == 2 and figures["below_target"] == 1
    assert figures["geometric_mean"] == pytest.approx(0.9)
    assert (figures["least"], figures["least_task"]) == (0.81, "b")
    assert figures["mean_seconds"] == pytest.approx(0.2) and figures["most_seconds"] == 0.3


def test_a_task_that_has_its_line_is_not_constructed_again(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    found = Construction("a/dense", "tiled", 1.0, 0.1)
    first = Known(path, "one")
    assert first.get("board", "a/dense", lambda: found) == found
    assert first.get("board", "a/small", lambda: None) is None

    def again() -> Construction:
        raise AssertionError("constructed again")

    assert Known(path, "one").get("board", "a/dense", again) == found
    assert Known(path, "one").get("board", "a/small", again) is None
    other = Construction("a/dense", "tiled", 0.9, 0.1)
    assert Known(path, "one").get("another", "a/dense", lambda: other) == other
    assert Known(path, "two").get("board", "a/dense", lambda: other) == other


def test_a_run_goes_on_behind_the_entries_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of another commit stay as they are, and say so."""
    output, made = tmp_path / "construction.json", []

    def constructions(model: object, name: str, target: str, *others: object) -> list[Construction]:
        made.append((name, target))
        return [Construction(f"{name}/dense", "tiled", 1.0 if name == "a" else 0.81, 0.1)]

    monkeypatch.setattr(benchmark, "constructions", constructions)
    monkeypatch.setattr(benchmark, "export", lambda name, folder, form: folder / name)
    monkeypatch.setattr(benchmark, "load", lambda path: path)
    first, second, third = "1" * 40, "2" * 40, "3" * 40

    def run(commit: str, models: str, targets: str) -> int:
        machine = {"cpu": "a processor", "cores": 2, "versions": {}}
        about = {"benchmark": HEADING, "command": "python", "date": "2026-11-27T12:00:00+00:00"}
        about |= {"schema": benchmark.SCHEMA, "commit": commit, "machine": machine}
        monkeypatch.setattr(benchmark, "heading", lambda module, schema: dict(about))
        words = f"construction --models {models} --targets {targets} --json {output}"
        monkeypatch.setattr(sys, "argv", words.split())
        return benchmark.main()

    assert run(first, "a", "board") == 0
    assert run(second, "a", "board,other") == 0
    assert run(third, "a b", "board") == 1
    assert made == [("a", "board"), ("a", "other"), ("b", "board")]
    result = read_result(output)
    assert [one["commit"] for one in result.figures["entries"]] == [first, second, third]
    rows = construction(result)[2:]
    assert rows == [
        f"| board | tiled | 2 | 0.9000 | 1 of 2 | 0.810, b/dense | 0.10, 0.10 | {first[:10]}, {third[:10]} |",
        f"| other | tiled | 1 | 1.0000 | 0 of 1 |  | 0.10, 0.10 | {second[:10]} |",
    ]
