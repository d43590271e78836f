"""Which tasks a search covers, and what they are."""

from __future__ import annotations

import pytest

from tests.benchmarks.baselines.tasks import choose, kind_of
from tests.unit.evaluation.cases import dense_task
from tests.unit.space import functions as fn


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
