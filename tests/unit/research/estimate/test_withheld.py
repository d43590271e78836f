"""Scores of withheld tasks: better where what was learned holds for them too."""

from __future__ import annotations

import random

import numpy as np
import pytest

from host.schedules import DesignSpace
from research.collection.dataset import MeasuredProgram
from research.estimate.constants_fit import Observation
from research.estimate.withheld import MeasuredTask, score, scores_of_withheld, spearman
from tests.unit.research.estimate.true_board import TAUGHT, TRUTH, WITHHELD, spaces_of


def _measured(space: DesignSpace, seed: int) -> MeasuredTask:
    """Random programs with the times that the true board gives them, in four rounds with a little noise."""
    generator, draw = random.Random(seed), np.random.default_rng(seed)
    key, rule = space.task.workload_hash, space.rule
    programs = []
    for _ in range(12):
        values = space.sample(generator)
        seconds = Observation(space, values, 1.0).estimate_s(TRUTH)
        times = tuple(float(seconds * one) for one in np.exp(draw.normal(0.0, 0.02, 4)))
        programs.append(
            MeasuredProgram("net", key, space.task.name, rule.name, rule.version, values, "uniform", times)
        )
    return MeasuredTask(space, programs, True)


@pytest.fixture(scope="module")
def tasks() -> dict[str, MeasuredTask]:
    spaces = spaces_of([*TAUGHT[:3], WITHHELD[0]])
    return {one.task.workload_hash: _measured(one, number) for number, one in enumerate(spaces)}


def test_what_other_tasks_teach_orders_the_programs_of_a_withheld_one(tasks: dict[str, MeasuredTask]) -> None:
    pairs = scores_of_withheld(tasks, 2)
    assert len(pairs) == len(tasks)
    assert all(before.task == after.task and before.programs == 12 for before, after in pairs)
    gains = [(after.order - before.order, before.spread - after.spread) for before, after in pairs]
    assert np.mean(gains, axis=0).min() > 0.02


def test_the_truth_chooses_the_fastest_program(tasks: dict[str, MeasuredTask]) -> None:
    for task in tasks.values():
        found = score(task, TRUTH)
        assert found.log_costs["all"] == pytest.approx(0.0, abs=0.05)
        assert found.log_costs["random"] == pytest.approx(found.log_costs["space"])
        assert found.log_costs["all"] <= found.log_costs["space_few"] + 0.05
        assert found.order > 0.8


def test_spearman_shares_the_ranks_of_ties() -> None:
    assert spearman(np.array([1.0, 2.0, 3.0]), np.array([10.0, 30.0, 20.0])) == pytest.approx(0.5)
    assert spearman(np.array([1.0, 1.0, 2.0]), np.array([1.0, 1.0, 5.0])) == pytest.approx(1.0)
    assert np.isnan(spearman(np.ones(3), np.arange(3.0)))
