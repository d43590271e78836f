"""The figures of what measurements do for models that taught nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.learned_estimate.__main__ import ARMS, shuffled_figures, withheld_figures
from benchmarks.learned_estimate.withheld import kernels_of, model_speed, observations_of, shuffled
from benchmarks.result_file import read_result, write_result
from benchmarks.tables import models as tables
from host.schedules import DesignSpace
from research.collection.dataset import MeasuredProgram
from tests.unit.benchmarks.tables.test_result_file import CONTENT
from tests.unit.learned_estimate.test_estimate import drawn
from tests.unit.tuning.simulated import dense_space

Truth = Callable[[DesignSpace, dict[str, int]], float]


def tall_is_slow(space: DesignSpace, values: dict[str, int]) -> float:
    return space.estimate_s(values) * (1.0 + 0.8 * math.log2(values["rows"]))


def collected(truth: Truth = tall_is_slow) -> list[MeasuredProgram]:
    """Four models of three kernels each; the first program is the best one by the estimate."""
    found = []
    for number in range(12):
        space = dense_space(f"kernel{number}")
        programs = drawn(space, 14, seed=number)
        first = min(programs, key=space.estimate_s)
        found += [
            MeasuredProgram(
                f"model{number % 4}",
                space.task.workload_hash,
                space.task.name,
                "tiled",
                space.rule.version,
                values,
                "ranked16" if place % 2 else "random",
                (truth(space, values),),
                1 + number,
                space.estimated(values),
                values is first,
            )
            for place, values in enumerate(programs)
        ]
    return found


def test_what_is_the_same_everywhere_is_learned_and_no_more_than_the_fastest_is_gained() -> None:
    programs = collected()
    kernels = kernels_of(programs)
    assert len(kernels) == 12
    figures = withheld_figures(observations_of(programs), kernels, ARMS)
    for model, most in figures["fastest"]["models"].items():
        assert 1.0 < figures["deployed"]["models"][model] <= most
        assert figures["deployed"]["models"][model] == figures["learned"]["models"][model]
    means = {arm: one["over_models"]["value"] for arm, one in figures.items()}
    assert means["learned"] > 0.9 * means["fastest"]
    assert means["ranked"] < means["deployed"]
    assert figures["learned"]["over_kernels"]["n"] == 12


def test_the_least_estimate_is_taken_whatever_was_constructed() -> None:
    # The first program is the one with the largest estimate of its kernel.
    programs = collected(lambda space, values: space.estimate_s(values))
    largest: dict[str, float] = {}
    for one in programs:
        largest[one.task] = max(largest.get(one.task, 0.0), one.seconds)
    programs = [replace(one, first=one.seconds == largest[one.task]) for one in programs]
    known, kernels = observations_of(programs), kernels_of(programs)
    figures = withheld_figures(known, kernels, ARMS)
    assert figures["estimate"] == figures["fastest"], "times are what was estimated"
    assert figures["estimate"]["over_kernels"]["least"] > 1.0
    # Where short tiles are fast, the estimate alone takes tall ones all the same.
    figures = withheld_figures(observations_of(collected()), kernels_of(collected()), ARMS)
    assert set(figures["estimate"]["models"].values()) == {1.0}
    assert figures["learned"]["over_models"]["value"] > 1.0


def test_the_table_has_a_row_for_each_arm_of_the_result(tmp_path: Path) -> None:
    programs = collected()
    figures = withheld_figures(observations_of(programs), kernels_of(programs), ARMS)
    shuffle = {"refused": 3, "judged": 3, "deployed": figures["deployed"]["over_models"]}

    def rows(*arms: str) -> list[str]:
        content = {**CONTENT, "arms": {arm: figures[arm] for arm in arms}, "shuffled": shuffle}
        write_result(tmp_path / "result.json", content)
        return [
            line.split("|")[1].strip()
            for line in tables.learned_estimate(read_result(tmp_path / "result.json"))
        ]

    assert rows(*ARMS)[4] == "least estimate"
    assert len(rows(*ARMS)) == len(rows("learned", "fastest")) + 3


def test_shuffled_times_keep_the_ratios_of_a_task_and_teach_nothing() -> None:
    known = observations_of(collected())
    mixed = shuffled(known, 1)
    for task in {one.program.task for one in known}:
        ratios, others = (
            sorted(one.seconds / one.program.estimate_s for one in every if one.program.task == task)
            for every in (known, mixed)
        )
        assert ratios == pytest.approx(others)
    assert [one.program for one in mixed] == [one.program for one in known]
    figures = shuffled_figures(known, kernels_of(collected()), 3)
    assert figures["judged"] == 3 and figures["refused"] == 3
    # One of twenty is allowed to convince, of the withheld models of each shuffle.
    assert figures["deployed"]["value"] == pytest.approx(1.0, abs=0.1)


def test_a_model_takes_the_time_of_each_kernel_as_often_as_it_calls_it() -> None:
    kernels = kernels_of(collected())[:2]
    first = [float(one.seconds[one.first]) for one in kernels]
    halved = [first[0] / 2.0, first[1]]
    expected = (first[0] + 2 * first[1]) / (first[0] / 2.0 + 2 * first[1])
    assert model_speed(kernels, halved) == pytest.approx(expected)
