"""A model that learned by search by T_hat, beside chance and beside what T_hat puts first."""

from __future__ import annotations

import argparse
from functools import cache
from pathlib import Path

import pytest

from benchmarks.learning.expert import (
    PAIRS,
    Tasks,
    judged_board,
    learned_tasks,
    parts_found,
    programs_of_arms,
    result_of,
)
from benchmarks.learning.simulated import SimulatedBoard
from host.learned_estimate.estimate import LearnedEstimate
from host.learned_estimate.search import best_found
from host.schedules import DesignSpace
from tests.unit.learned_estimate.test_evidence import observed, tall_is_slow
from tests.unit.schedules.cpu.test_chain import chain_space
from tests.unit.tlm.learning import untrained
from tests.unit.tlm.model.test_decoding import SIZE
from tests.unit.tuning.simulated import dense_space, profile

BOARD = SimulatedBoard("x86_64-v3", 3)


@cache
def _chain() -> DesignSpace:
    return chain_space("two parts with stride 2")[0]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return untrained(tmp_path / "base", SIZE)


def test_the_best_of_a_search_come_with_what_is_expected_of_them() -> None:
    learned, space = LearnedEstimate(observed(tall_is_slow)), dense_space("judged")
    begin = [{one.name: one.choices[0] for one in space.decisions}]
    found = best_found(learned, space, begin, 5)
    costs = [cost for _, cost in found]
    assert len(found) == 5 and costs == sorted(costs)
    assert costs == pytest.approx([learned.cost_s(space, values) for values, _ in found])
    assert costs[0] < learned.cost_s(space, begin[0])


def test_more_draws_of_the_parts_are_expected_to_be_better() -> None:
    space, learned = _chain(), LearnedEstimate(BOARD.taught([dense_space(f"task{n}") for n in range(3)]))
    found = parts_found(learned, space, 0)
    costs = [learned.cost_s(space, programs[0]) for programs in found.values()]
    assert list(found) == ["parts_of_32_that", "parts_of_128_that", "parts_of_1024_that", "optimum_that"]
    assert costs == sorted(costs, reverse=True) and costs[0] > costs[-1]
    assert all(space.legal(programs[0]) for programs in found.values())


def test_nothing_that_is_judged_is_learned() -> None:
    own = dense_space("own")
    tasks = Tasks((own,), (_chain().parts[0],), (("judged", _chain()),))
    assert learned_tasks(tasks, 0, 9) == [own]


def test_every_arm_begins_with_a_legal_program(base: Path, tmp_path: Path) -> None:
    tasks = Tasks((dense_space("own"),), (), (("judged", _chain()),))
    options = argparse.Namespace(model=base, steps=1, rate=1e-3, rounds=2, tasks=4, measured=True)
    rows = judged_board("x86_64-v3", 3, tasks, tmp_path / "models", options)
    [row] = rows
    assert {arm for pair in PAIRS for arm in pair} <= set(row["seconds"]) | {"exchanged_random32_that"}
    assert row["expected"]["optimum_that"] == 1.0
    figures = result_of([row, {**row, "board": "another"}])
    ratio = figures["ratios"]["0"]["expert_unmixed32_that/exchanged_random32_that"]["all"]
    seconds = row["seconds"]
    assert ratio["geomean"] == pytest.approx(
        seconds["exchanged_random32_that"] / seconds["expert_unmixed32_that"]
    )
    # Without parts there is nothing to mix.
    learned = LearnedEstimate(observed(tall_is_slow))
    arms = programs_of_arms(dense_space("judged"), profile(), learned, {"shipped": base}, 0)
    assert "shipped_weighted32_that" not in arms and "exchanged_random32_that" not in arms
