"""The benchmark of construction says how near a program is to the best of random ones."""

from __future__ import annotations

import pytest

from benchmarks.construction.__main__ import Construction, constructed, summary
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
