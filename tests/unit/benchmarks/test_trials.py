"""The figures of tuned models beside chance: pairing, means, the table, and who proposes in which arm."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.result_file import read_result, write_result
from benchmarks.tables import models as tables
from benchmarks.trials.__main__ import ARMS, geometric_means
from benchmarks.trials.paired_runs import block_medians
from host.tuning.proposers.random_sampling import RandomSampling
from tests.unit.benchmarks.tables.test_result_file import CONTENT
from tests.unit.tuning.simulated import dense_space, profile


class Counting:
    """A model that counts its runs."""

    def __init__(self, log: list[str], name: str) -> None:
        self.log, self.name = log, name

    def run(self, inputs: Sequence[object]) -> None:
        self.log.append(self.name)


def test_both_models_run_equally_often_in_every_block_and_in_changing_order() -> None:
    log: list[str] = []
    models: Any = [Counting(log, "a"), Counting(log, "b")]
    found = block_medians(models, (), blocks=5, seconds=60.0)
    assert [len(block) for block in found] == [2] * 5
    pairs = ["".join(log[begin : begin + 2]) for begin in range(0, len(log), 2)]
    assert set(pairs) == {"ab", "ba"} and len(pairs) == 5 * 10


def test_three_blocks_are_completed_however_little_time_there_is() -> None:
    models: Any = [Counting([], "a"), Counting([], "b")]
    assert len(block_medians(models, (), blocks=40, seconds=0.0)) == 3


def figures(value: float, low: float | None = None, high: float | None = None) -> dict[str, Any]:
    return {
        "speed": {"value": value, "low": low, "high": high, "blocks": 40},
        "kernels_ms": {"before": 1.2, "after": 1.0},
        "tasks": 5,
        "replaced": 3,
        "won": {"gensor": 3, "bayesian": 2},
        "trials": 300,
        "failed": 0,
        "seconds": 60.0,
    }


def test_means_are_over_the_models_that_every_arm_has_tuned() -> None:
    models = {
        name: {"product": figures(1.1 * factor), "random": figures(factor)}
        for name, factor in (("a", 1.0), ("b", 1.1), ("c", 1.21))
    }
    models["d"] = {"product": figures(9.0)}
    found = geometric_means(models)
    assert found["product"]["value"] == pytest.approx(1.21)
    assert found["random"]["value"] == pytest.approx(1.1)
    assert found["product"]["models"] == 3
    assert geometric_means({"a": models["a"]}) == {}, "one model is no mean"


def test_the_table_shows_every_arm_and_who_won(tmp_path: Path) -> None:
    found = {
        "net": {"product": figures(1.09, 1.07, 1.11), "random": figures(1.0)},
        "other": {"random": figures(0.99)},
    }
    content = {**CONTENT, "models": found, "geometric_mean": {}}
    write_result(tmp_path / "result.json", content)
    head, _, net, other = tables.trials(read_result(tmp_path / "result.json"))
    assert "product, 95% | random, 95%" in head
    assert net.startswith("| net | 1.090 (1.070 to 1.110) | 1.000 | 1.20 | 3 of 5: ")
    assert "Bayesian optimisation 2, Gensor 3" in net
    assert other.startswith("| other | - | 0.990 |")


def test_chance_is_ranked_by_the_estimate_in_one_arm_only() -> None:
    space = dense_space()
    [uniform], [ranked] = ARMS["random"], ARMS["ranked"]
    estimates = {
        name: [one_space.estimate_s({n: int(v) for n, v in one.decisions}) for one in proposed]  # type: ignore[arg-type]
        for name, proposer in (("uniform", uniform), ("ranked", ranked))
        for one_space, proposed in [(space, proposer.propose(space, profile(), (), 24, 0))]
    }
    assert sum(estimates["ranked"]) / 24 < 0.7 * sum(estimates["uniform"]) / 24


def test_a_random_program_is_what_the_generator_draws() -> None:
    space = dense_space()
    generator = random.Random(f"{space.task.workload_hash}/3")
    [found] = RandomSampling().propose(space, profile(), (), 1, 3)
    assert dict(found.decisions) == space.sample(generator)
