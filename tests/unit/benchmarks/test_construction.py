"""The benchmark of construction says how near a program is to the best of random ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.construction.__main__ import Construction, Known, constructed, summary
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
    first = Known(path)
    assert first.get("board", "a/dense", lambda: found) == found
    assert first.get("board", "a/small", lambda: None) is None

    def again() -> Construction:
        raise AssertionError("constructed again")

    assert Known(path).get("board", "a/dense", again) == found
    assert Known(path).get("board", "a/small", again) is None
    other = Construction("a/dense", "tiled", 0.9, 0.1)
    assert Known(path).get("another", "a/dense", lambda: other) == other


def test_a_model_is_whole_once_all_its_tasks_are(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    known = Known(path)
    found = Construction("a/dense", "tiled", 1.0, 0.1)
    known.get("board", "a/dense", lambda: found)
    assert known.of("board", "a", 3) is None
    known.finish("board", "a", 3, ["a/dense"])
    assert known.of("board", "a", 3) == Known(path).of("board", "a", 3) == [found]
    assert Known(path).of("board", "a", 4) is None and Known(path).of("board", "b", 3) is None
