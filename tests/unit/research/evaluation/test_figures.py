"""The arithmetic of the figures."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from research.evaluation.comparison import FinalistComparison
from research.evaluation.figures import search_curve, speed_curve, tuning_time, weighted_ratio
from research.evaluation.learning import rounds
from research.evaluation.summary import TaskResult, network_figures
from research.evaluation.validity import Validity
from tests.unit.research.evaluation.cases import baseline, dense_task, history


def test_ratios_are_weighted_by_calls_and_time() -> None:
    weights = {"a": 3, "b": 1}
    searched = {"a": 1.0, "b": 10.0}
    # Twice as fast in the light task helps little, half as fast in the heavy one hurts.
    assert weighted_ratio(weights, searched, {"a": 0.5, "b": 20.0}) == pytest.approx(13 / 21.5)
    assert weighted_ratio(weights, searched, searched) == 1.0


def test_without_a_time_of_every_task_there_is_no_ratio() -> None:
    assert weighted_ratio({"a": 3, "b": 1}, {"a": 1.0, "b": 1.0}, {"a": 1.0}) is None


def test_time_to_reach_a_share_of_the_final_speed() -> None:
    histories = [history((1.0, 4.0), (5.0, 2.0)), history((4.0, 1.02), (16.0, 1.0), wall_s=20.0)]
    # At half of their way (5 s and 10 s) the first has its best, the second is 2% from it.
    found = tuning_time(histories, [1, 1])
    assert (found.whole_s, found.whole_cpu_s) == (30.0, 15.0)
    assert (found.reached_s, found.reached_cpu_s) == (pytest.approx(15.0), pytest.approx(7.5))
    # The whole of the speed takes the second one until 16 s of its 20 s.
    assert tuning_time(histories, [1, 1], share=1.0).reached_s == pytest.approx(24.0)
    # A task that is called often decides: 2% of a task of weight 100 is not within 1%.
    assert tuning_time(histories, [1, 100], share=0.99).reached_s == pytest.approx(24.0)


def test_figures_of_a_network_have_the_fields_that_are_documented() -> None:
    task = dense_task()
    comparison = FinalistComparison(2e-5, {"tlm/0": 1e-5, "random/0": 4e-5}, {"gensor/0": "off by 1"}, 1e-7)
    methods = ("tlm", "gensor", "random")

    class Chosen:
        proposed, applied, propose_s, seconds, reason, decisions = 4, 3, 0.2, 0.5, "", (("rows", 2),)
        best_by_measurement = (4e-5, 1e-5)

    results = {
        task.workload_hash: TaskResult(
            {(name, 0): Chosen() for name in methods},  # type: ignore[misc]
            comparison,
            Validity(32, 24),
        )
    }
    other = dense_task(48)
    results[other.workload_hash] = TaskResult(
        {(name, 0): Chosen() for name in methods},  # type: ignore[misc]
        FinalistComparison(1.0, {"tlm/0": 9.0, "metaschedule-1000": 0.5}, {}, 0.0),
        Validity(32, 0),
    )
    made = replace(baseline(task), beside=baseline(other).tasks)
    figures = network_figures(made, results, methods, (0,), load_s=1.0)
    assert figures["budgets"] == {"0": {"tlm": pytest.approx(2.0), "gensor": None, "random": 0.5}}
    assert figures["coverage"] == 0.8
    assert figures["valid_share"] == 0.75
    assert figures["seconds_per_proposal"] == pytest.approx(0.05)
    assert figures["curves"]["tlm"] == [pytest.approx(0.5), pytest.approx(2.0)]
    assert figures["curves"]["evolutionary"] == [(1, pytest.approx(0.5)), (2, pytest.approx(1.0))]
    reached = figures["tuning"]["reached"]
    assert reached["tlm"]["seconds"] == 1.5  # reading the model counts
    assert reached["tlm"]["times_less_than_whole"] == pytest.approx(10.0 / 1.5)
    assert reached["tlm"]["times_less_than_reached"] == pytest.approx(5.0 / 1.5)
    assert reached["gensor"] is None and reached["random"] is None
    [beside] = figures["beside"]
    assert beside["methods"]["metaschedule-1000"]["us"] == pytest.approx(5e5)
    [entry] = figures["tasks"]
    assert entry["baseline_us"] == pytest.approx(20.0)
    assert entry["methods"]["gensor/0"]["us"] is None
    assert entry["methods"]["gensor/0"]["reason"] == "off by 1"


def test_the_model_learns_at_every_budget_and_between_those_far_apart() -> None:
    assert rounds((0, 1, 10, 32)) == [0, 1, 5, 10, 17, 24, 32]
    assert rounds((10, 0)) == [0, 5, 10]
    assert rounds((8,)) == [8]


def test_curves_are_of_the_whole_network() -> None:
    weights, searched = {"a": 1, "b": 2}, {"a": 1.0, "b": 1.0}
    curve = speed_curve(weights, searched, {"a": [2.0, 1.0, 1.0], "b": [math.inf, 1.0]})
    assert curve == [0.0, 1.0, 1.0]
    assert speed_curve(weights, searched, {"a": [1.0], "b": []}) == []
    first, second = history((1.0, 4.0), (2.0, 2.0)), history((1.0, 1.0))
    second = replace(second, by_trial=((2, 1.0),))
    # After one trial the second task has no program yet.
    assert search_curve([first, second], [1, 2]) == [(2, 1.0)]
