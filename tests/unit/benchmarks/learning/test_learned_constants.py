"""The figures of learned constants and of ways to choose a program, and their tables."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from benchmarks.learned_constants.__main__ import main, measured_tasks
from benchmarks.learned_constants.figures import summary
from benchmarks.result_file import Result, read_result, write_result
from benchmarks.tables import operators
from host.errors import UserError
from host.schedules import space_for
from research.collection.collect import CollectedTask
from research.collection.dataset import MeasuredProgram, append_programs
from research.estimate.withheld import TaskScore
from tests.unit.benchmarks.tables.test_result_file import CONTENT
from tests.unit.schedules import functions as fn


def _pair(order: float, costs: dict[str, float], learned: dict[str, float]) -> tuple[TaskScore, TaskScore]:
    before = TaskScore("tiled", "task", 24, order, 0.3, {k: math.log(v) for k, v in costs.items()})
    after = TaskScore("tiled", "task", 24, order + 0.1, 0.2, {k: math.log(v) for k, v in learned.items()})
    return before, after


PAIRS = [
    _pair(0.5, {"random": 2.0, "space": 3.0, "all": 1.1}, {"random": 2.0, "space": 3.0, "all": 1.0}),
    _pair(0.7, {"random": 2.0, "all": 1.2}, {"random": 2.0, "all": 1.2}),
    _pair(math.nan, {"random": 2.0, "all": 1.6}, {"random": 2.0, "all": 1.6}),
]


def test_a_figure_has_mean_interval_median_and_most() -> None:
    found = summary(PAIRS)
    assert (found["tasks"], found["programs"]) == (3, 72)
    assert found["order"]["before"] == {"mean": 0.6, "low": None, "high": None, "median": 0.6, "most": 0.7}
    all_ = found["ways"]["all"]
    logs = [math.log(value) for value in (1.1, 1.2, 1.6)]
    mean = sum(logs) / 3
    # Student's 97.5% quantile for two degrees of freedom.
    half = 4.303 * math.sqrt(sum((log - mean) ** 2 for log in logs) / 2) / math.sqrt(3)
    assert all_["before"]["mean"] == pytest.approx(math.exp(mean), abs=1e-4)
    assert all_["before"]["low"] == pytest.approx(math.exp(mean - half), abs=1e-4)
    assert all_["before"]["high"] == pytest.approx(math.exp(mean + half), abs=1e-4)
    assert (all_["before"]["median"], all_["before"]["most"]) == (1.2, 1.6)
    assert all_["speed"]["mean"] == pytest.approx(1.1 ** (1 / 3), abs=1e-4)
    assert found["ways"]["space"]["tasks"] == 1 and found["ways"]["space"]["before"]["low"] is None


def _result(folder: Path, **figures: Any) -> Result:
    write_result(folder / "result.json", {**CONTENT, **figures})
    return read_result(folder / "result.json")


def test_chance_has_no_figure_after_learning(tmp_path: Path) -> None:
    few = {"tasks": 2, "order": None, "spread": None, "ways": None}
    figures = _result(tmp_path, rules={"rowwise": few, "tiled": summary(PAIRS * 2)}, all=summary(PAIRS * 3))
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in operators.learned_choices(figures)]
    assert {row[0] for row in rows[2:]} == {"tiled", "all"}, "two tasks say nothing"
    shown = {(row[0], row[1]): row[2:] for row in rows[2:]}
    chance = shown["tiled", "one of the measured, at random"]
    assert chance == ["6", "2.000 (2.000 to 2.000)", "2.000", "2.00", ""]
    chosen = shown["tiled", "the best of the measured by the estimate"]
    assert chosen[2:4] == ["1.200", "1.60"] and chosen[4].startswith("1.032 (")
    head, _, *lines = operators.learned_constants(_result(tmp_path, rules={}, all=summary(PAIRS)))
    assert len(lines) == 1 and lines[0].count("|") == head.count("|")
    assert lines[0].startswith("| all | 3, 72 | 0.60 | 0.70 | 0.60, 0.70 |")


def test_only_programs_of_this_rule_and_of_tasks_that_are_known_count(tmp_path: Path) -> None:
    space = space_for(fn.task(fn.dense(24, 64, 32, lanes=8)), fn.board(restrict="avx2").hardware)
    key, version = space.task.workload_hash, space.rule.version
    tasks = {key: CollectedTask("net", space)}

    def program(number: int, task: str, version: int) -> MeasuredProgram:
        return MeasuredProgram("net", task, "t", "tiled", version, {"rows": number}, "uniform", (1.0, 2.0))

    path = tmp_path / "programs.jsonl"
    append_programs(path, [program(number, key, version + 1) for number in range(9)])
    append_programs(path, [program(number, "another", version) for number in range(9)])
    with pytest.raises(UserError, match="has no 8 programs of any task of these models"):
        measured_tasks(path, tasks)
    append_programs(path, [program(number, key, version) for number in range(9)])
    [found] = measured_tasks(path, tasks).values()
    assert (len(found.programs), found.whole_sweep) == (9, False)


def test_nothing_is_added_to_compressed_programs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["benchmark", "--data", "programs.jsonl.gz"])
    with pytest.raises(SystemExit):
        main()
    assert "nothing can be added to it: give --minutes 0" in capsys.readouterr().err
