"""Tuning with recorded measurements: what few of them find, beside chance."""

from __future__ import annotations

import pytest

from benchmarks.learned_estimate.withheld import kernels_of, observations_of
from benchmarks.measured_search.__main__ import figures_of
from benchmarks.measured_search.allocation import figures_of as allocation_figures
from benchmarks.measured_search.allocation import speeds_of
from benchmarks.measured_search.replayed_tuning import Division, NoisyTuning, ReplayedTuning, orders_of
from tests.unit.benchmarks.learning.test_learned_estimate import collected


def test_the_learned_estimate_needs_fewer_measurements_than_chance() -> None:
    programs = collected()
    found = figures_of(kernels_of(programs), observations_of(programs), 3, 4)
    assert set(found) == {f"model{number}" for number in range(4)}
    for arms in found.values():
        [fastest] = arms["fastest"]
        for arm in ("ranked", "mixed", "improvement", "taught"):
            assert arms[arm][0] == 1.0
            assert arms[arm] == sorted(arms[arm]) and arms[arm][-1] <= fastest * (1.0 + 1e-9)
        assert arms["taught"][1] > arms["mixed"][1]
    assert sum(arms["improvement"][3] > arms["ranked"][3] for arms in found.values()) >= 3


def test_no_program_is_measured_twice() -> None:
    kernels = kernels_of(collected())[:2]
    tuning = ReplayedTuning(kernels)
    for _ in range(30):
        tuning.measure_expected()
    for kernel in kernels:
        assert sorted(tuning.tried[kernel.task]) == list(range(len(kernel.programs)))
    assert tuning.speed() == pytest.approx(
        sum(k.weight * float(k.seconds[k.first]) for k in kernels)
        / sum(k.weight * float(k.seconds.min()) for k in kernels)
    )


def test_chance_with_the_ranker_takes_ranked_programs_only() -> None:
    kernels = kernels_of(collected())[:1]
    [kernel] = kernels
    [ranked] = orders_of(kernels, "ranked", 0).values()
    assert {kernel.drawn_by[i] for i in ranked} == {"ranked16"} and kernel.first not in ranked
    [mixed] = orders_of(kernels, "mixed", 0).values()
    assert len(mixed) == len(kernel.programs) - 1 and mixed != orders_of(kernels, "mixed", 1)[kernel.task]


def test_trials_that_promise_most_find_more_than_chance() -> None:
    kernels = kernels_of(collected())
    models = {
        model: speeds_of([one for one in kernels if one.model == model], True, 3, 0.02, 3)
        for model in sorted({one.model for one in kernels})
    }
    figures = allocation_figures(models)
    assert figures["ratios"]["across/chance"]["value"] > 1.0
    for arms in models.values():
        assert all(speed <= arms["fastest"] * (1.0 + 1e-9) for speed in arms.values())


def test_without_noise_all_trials_find_the_fastest_program() -> None:
    kernels = kernels_of(collected())[:2]
    every = sum(len(one.programs) for one in kernels)
    tuning = NoisyTuning(kernels, Division(chance=False, across=True, inside=True), 0.0, 0)
    speed = tuning.run(2 * every, 8)
    # Less than 2% does not change a program.
    assert speed >= ReplayedTuning(kernels).speed()
    fastest = sum(k.weight * float(k.seconds[k.first]) for k in kernels) / sum(
        k.weight * float(k.seconds.min()) for k in kernels
    )
    assert fastest / 1.021 <= speed <= fastest * (1.0 + 1e-9)
    assert tuning.trials < 2 * every, "no program is measured for a third time"
