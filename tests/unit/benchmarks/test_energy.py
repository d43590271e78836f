"""The benchmark of programs chosen for energy: its simulated boards, and what its figures are of."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from benchmarks.energy.__main__ import ARMS, figures_of
from benchmarks.energy.boards import BOARDS, TrueBoard, best, tasks_for
from benchmarks.energy.tuning import Tuned
from host.schedules import DesignSpace


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> TrueBoard:
    return TrueBoard(BOARDS[0], 0, tmp_path_factory.mktemp("board"))


@pytest.fixture(scope="module")
def space(board: TrueBoard) -> DesignSpace:
    return tasks_for(board, 0, 1)[0]


def test_the_power_of_a_board_depends_on_the_program_and_the_clock(
    board: TrueBoard, space: DesignSpace, tmp_path: Path
) -> None:
    slow = TrueBoard(BOARDS[1], 0, tmp_path)
    assert (BOARDS[0].board, BOARDS[0].clock) == (BOARDS[1].board, 2.0 * BOARDS[1].clock)
    first = next(space.neighbours(best(board, space, [], 0.0, 4)[0]))
    one, four = ({**first, "parallel": count} for count in (1, space.threads))
    (one_s, one_w), (_, four_w) = (board.seconds_and_watts(space, each) for each in (one, four))
    assert BOARDS[0].idle_w < one_w < four_w
    slow_s, slow_w = slow.seconds_and_watts(space, one)
    assert slow_s == pytest.approx(2.0 * one_s, rel=1e-3) and BOARDS[0].idle_w < slow_w < one_w
    assert board.cost(space, one, 1.0) == pytest.approx(one_s * one_w)
    # The same each time: what comes before it changes nothing.
    assert TrueBoard(BOARDS[0], 0, tmp_path).cost(space, one, 1.0) == pytest.approx(
        board.cost(space, one, 1.0), rel=1e-6
    )


def test_a_tuning_measures_as_often_as_it_may_and_takes_what_it_measured(
    board: TrueBoard, space: DesignSpace, tmp_path: Path
) -> None:
    tuned = Tuned(board, [space], "learned", 1.0, 4, 0, tmp_path)
    key = space.task.workload_hash
    measured = tuned.measured(key)
    assert len(measured) == 4 and tuned.taken(key, 1.0) in measured
    drawn, optimum = best(board, space, measured, 1.0, 8)
    assert board.cost(space, optimum, 1.0) <= board.cost(space, drawn, 1.0)
    assert board.cost(space, optimum, 1.0) <= min(board.cost(space, one, 1.0) for one in measured)


def test_a_task_counts_once_with_the_mean_of_its_seeds() -> None:
    logs = {
        ("energy", board, task, arm): [0.0, 0.2 if arm == "latency" else 0.1]
        for board in ("a", "b")
        for task in ("x", "y")
        for arm in ARMS
    }
    found = figures_of(logs)
    learned = found["energy"]["learned"]
    assert learned["all"]["n"] == 4 and learned["a"]["n"] == 2
    assert learned["all"]["value"] == pytest.approx(math.exp(0.05))
    assert found["energy beside learned"]["latency"]["all"]["value"] == pytest.approx(math.exp(0.05))
