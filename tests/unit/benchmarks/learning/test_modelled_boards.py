"""First programs on modelled boards: how arms choose, and what is made of their times."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.modelled_boards import __main__ as benchmark
from benchmarks.modelled_boards.choices import BUDGETS, BoardEstimates, chosen_programs, of_board, programs_in
from benchmarks.modelled_boards.draws import DRAWN, random_programs
from benchmarks.modelled_boards.figures import ALL, RATIOS, Judged, ratios, shares
from benchmarks.modelled_boards.judging import Judge, judged_tasks
from benchmarks.modelled_boards.published import PUBLISHED, compared
from benchmarks.result_file import Result
from benchmarks.tables import modelled
from host.errors import TlmError, UserError
from host.model import Candidate
from host.schedules import DesignSpace
from tests.unit.learned_estimate.test_evidence import observed, tall_is_slow
from tests.unit.tuning.simulated import dense_space, profile

SPACE = dense_space("judged")


def _judged(board: str, task: str, **seconds: float) -> Judged:
    return Judged(board, "network", task, "tiled", seconds)


def test_ratios_are_means_over_seeds_and_then_over_tasks() -> None:
    judged = [
        # Two seeds of one task: the language model is twice and eight times as fast as chance, 4 in the mean.
        _judged("a", "one", tlm32_that=1.0, random32_t=2.0),
        _judged("a", "one", tlm32_that=1.0, random32_t=8.0),
        _judged("a", "two", tlm32_that=1.0, random32_t=1.0),
        _judged("b", "one", tlm32_that=2.0, random32_t=1.0),
        # An arm that gave nothing is left out with its task.
        _judged("b", "three", random32_t=1.0),
    ]
    found = ratios(judged, RATIOS)["tlm32_that/random32_t"]
    assert found["a"]["geomean"] == pytest.approx(2.0) and found["a"]["tasks"] == 2
    assert found["b"]["geomean"] == pytest.approx(0.5) and found["b"]["tasks"] == 1
    assert found[ALL]["geomean"] == pytest.approx(math.exp(math.log(4.0 * 1.0 * 0.5) / 3.0))
    assert found["a"]["median"] == pytest.approx(2.0) and found["a"]["least"] == pytest.approx(1.0)
    assert "tlm32_t/random32_t" not in ratios(judged, RATIOS)


def test_shares_are_of_the_best_of_all_arms_and_seeds() -> None:
    judged = [_judged("a", "one", gensor_t=2.0, random_first=4.0), _judged("a", "one", gensor_t=1.0)]
    found = shares(judged)
    assert found["gensor_t"]["a"] == pytest.approx(math.sqrt(0.5 * 1.0))
    assert found["random_first"][ALL] == pytest.approx(0.25)


def test_arms_that_learned_choose_what_the_board_prefers() -> None:
    known = observed(tall_is_slow)
    learned = BoardEstimates(known[:60], of_board({"other": known[60:], "own": []}, "own"), seed=0)
    assert set(learned.estimates) == {
        *(f"own_{count}" for count in BUDGETS),
        *(f"others_{count}" for count in BUDGETS),
        "others",
        "shuffled",
    }

    def speechless(*_: object) -> list[Candidate]:
        raise TlmError("its language has no token for this")

    model = SimpleNamespace(by=lambda _: SimpleNamespace(propose=speechless))
    chosen = chosen_programs(SPACE, profile(), learned, model, seed=0)  # type: ignore[arg-type]
    assert not any(arm.startswith("tlm") for arm in chosen)
    assert chosen == chosen_programs(SPACE, profile(), learned, None, seed=0)

    def seconds(arm: str) -> float:
        return tall_is_slow(SPACE, chosen[arm])

    assert seconds("gensor_that_own_50") < seconds("gensor_t")
    assert seconds("random32_that") <= seconds("random32_t")
    assert seconds("infilled_random32_that") <= seconds("infilled_random32_t")
    assert SPACE.estimate_s(chosen["random32_t"]) <= SPACE.estimate_s(chosen["random_first"])


class _Timer:
    """Takes as long as the board of `tall_is_slow`, by the order of the calls."""

    rounds = 1

    def __init__(self) -> None:
        self.asked: list[int] = []

    def times(self, space: DesignSpace, functions: dict[str, Any], note: object) -> dict[str, tuple[float]]:
        self.asked.append(len(functions))
        return {name: (1.0 + number,) for number, name in enumerate(functions)}


def test_equal_programs_of_several_arms_are_timed_once() -> None:
    generator = random_programs(SPACE, 0)
    first, second = generator[0], next(one for one in generator if one != generator[0])
    timer = _Timer()
    judge = Judge(timer)  # type: ignore[arg-type]
    found = judge.seconds(SPACE, {"a": first, "b": second, "c": dict(first)})
    assert found == {"a": 1.0, "b": 2.0, "c": 1.0}
    assert judge.seconds(SPACE, {"d": second}) == {"d": 2.0}
    assert timer.asked == [2]


def test_tasks_that_taught_or_leave_no_choice_are_not_judged() -> None:
    tasks = {SPACE.task.workload_hash: SimpleNamespace(space=SPACE)}
    flop = SPACE.task.flops

    def judged(taught: set[str], most: float) -> int:
        return len(judged_tasks(tasks, taught, 8, most))  # type: ignore[arg-type]

    assert judged(set(), 2 * flop) == 1
    assert judged(set(tasks), 2 * flop) == judged(set(), flop / 2) == 0
    assert len(random_programs(SPACE, 1)) == DRAWN


def test_tasks_with_small_spaces_are_left_out() -> None:
    tasks = {SPACE.task.workload_hash: SimpleNamespace(space=SPACE)}
    size = programs_in(SPACE)

    def judged(least: float) -> int:
        return len(judged_tasks(tasks, set(), 8, math.inf, least))  # type: ignore[arg-type]

    assert (judged(0.0), judged(size / 2), judged(size)) == (1, 1, 0)


def test_data_of_one_board_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="0 boards"):
        benchmark.read_data(tmp_path)


def test_tables_show_every_ratio() -> None:
    judged = [_judged(board, task, gensor_t=1.0, random_first=2.0) for board in "ab" for task in "xyz"]
    figures = {"ratios": ratios(judged, RATIOS), "share_of_best": shares(judged)}
    result = argparse.Namespace(figures=figures)
    lines = modelled.first_programs(result)  # type: ignore[arg-type]
    assert lines[0] == "| ratio | a | b | all, 95%; median |"
    assert "random_first / gensor_t | 0.500 | 0.500 | 0.500 (0.500 to 0.500); 0.500" in lines[2]
    assert modelled.shares(result)[2] == "| gensor_t | 1.000 | 1.000 | 1.000 |"  # type: ignore[arg-type]


def test_published_ratios_are_those_of_times() -> None:
    exact = {network: {board: 2e-3 * ms for board, ms in of.items()} for network, of in PUBLISHED.items()}
    found = compared(exact)
    assert all(one["deviation"] == pytest.approx(1.0) for one in found.values()) and len(found) == 6
    exact["resnet50"]["raspberry_pi_5"] *= 2.0
    found = compared(exact)
    assert found["resnet50 raspberry_pi_4/raspberry_pi_5"]["deviation"] == pytest.approx(0.5)
    result: Result = argparse.Namespace(figures={"ratios": found})  # type: ignore[assignment]
    assert len(modelled.published(result)) == 8
