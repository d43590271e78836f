"""Which tasks a search covers, and what they are."""

from __future__ import annotations

import pytest

from research.baselines.__main__ import FOLDER, longest
from research.baselines.tasks import Network, choose, kind_of
from research.evaluation.baseline import baseline_names, read_baseline
from research.evaluation.comparison import program_of_record
from tests.unit.research.evaluation.cases import dense_task
from tests.unit.schedules import functions as fn


def test_the_fewest_tasks_that_cover_the_share() -> None:
    tasks = [dense_task(rows, weight) for rows, weight in ((8, 1), (16, 4), (24, 2))]
    seconds = dict(zip((task.workload_hash for task in tasks), (2.0, 1.5, 1.0), strict=True))
    # 2 + 6 + 2 seconds in all.
    chosen, share = choose(tasks, seconds, 0.6)
    assert ([task.name for task in chosen], share) == (["dense16"], pytest.approx(0.6))
    chosen, share = choose(tasks, seconds, 0.61)
    assert ([task.name for task in chosen], share) == (["dense16", "dense8"], pytest.approx(0.8))


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (fn.dense(24, 64, 32), "matmul"),
        (fn.dense(1, 64, 32), "gemv"),
        (fn.batched(4, 8, 16, 32), "batched_matmul"),
        (fn.convolution(8, 16, 32, 3, 1), "convolution"),
        (fn.depthwise(8, 32, 1), "depthwise"),
        (fn.softmax(8, 16), "reduction"),
        (fn.addition(8, 16), "injective"),
    ],
)
def test_kinds(function: object, kind: str) -> None:
    assert kind_of(fn.task(function)) == kind


def test_the_long_search_takes_the_heaviest_task_of_each_kind_of_all_networks() -> None:
    dense, heavier = dense_task(16, weight=1), dense_task(24, weight=5)
    softmax = fn.task(fn.softmax(8, 16), "softmax")
    moved = fn.task(fn.addition(8, 16), "addition")
    seconds = {task.workload_hash: 1.0 for task in (dense, heavier, softmax, moved)}
    first = Network("first", (dense, softmax), seconds, (dense,), 0.5, 2.0)
    second = Network("second", (heavier, moved), seconds, (heavier,), 0.8, 6.0)
    found = [(network.name, task.name) for network, task in longest([first, second])]
    assert found == [("second", "dense24"), ("first", "softmax")]


@pytest.mark.parametrize("network", baseline_names(FOLDER))
def test_the_baselines_of_this_repository_can_be_compared_with(network: str) -> None:
    baseline = read_baseline(FOLDER, network)
    assert baseline.name == "metaschedule-256"
    assert baseline.coverage >= 0.7
    assert sum(entry.share for entry in baseline.tasks) == pytest.approx(baseline.coverage)
    shares = [entry.share for entry in baseline.tasks]
    assert shares == sorted(shares, reverse=True)
    assert baseline.machine["cpu"] and baseline.machine["versions"]["apache-tvm"]
    for entry in (*baseline.tasks, *baseline.beside):
        for trials, history in entry.searches.items():
            assert history.trials <= trials
            assert history.by_time[-1].wall_s <= history.wall_s
    light = baseline.tasks[-1]
    assert program_of_record(light.task, light.searches[256].records[0]).params
