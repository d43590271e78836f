"""Constants learned from measured programs: found where they are known, and no worse where nothing is."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest

from host.schedules import DesignSpace
from research.estimate.constants_fit import Observation, fit_constants
from tests.unit.research.estimate.true_board import TAUGHT, TRUTH, WITHHELD, spaces_of


def _observed(
    spaces: list[DesignSpace], count: int, seed: int, noise: float = 0.03, wild: float = 0.0
) -> list[Observation]:
    """Programs of each space with the times of the true board, noise, and a share of wild outliers."""
    draw, generator = np.random.default_rng(seed), random.Random(seed)
    found = []
    for space in spaces:
        offset = draw.normal(0.0, 0.2)
        for _ in range(count):
            values = space.sample(generator)
            seconds = Observation(space, values, 1.0).estimate_s(TRUTH)
            seconds *= 5.0 if draw.random() < wild else 1.0
            found.append(Observation(space, values, seconds * math.exp(offset + draw.normal(0, noise))))
    return found


def _spread(observations: list[Observation], learned: tuple[tuple[str, float], ...]) -> float:
    """Root mean square of what the estimate misses within each task, in logarithms."""
    by_task: dict[str, list[float]] = {}
    for one in observations:
        missed = math.log(one.seconds / one.estimate_s(learned))
        by_task.setdefault(one.space.task.workload_hash, []).append(missed)
    return math.sqrt(np.mean([np.var(missed) for missed in by_task.values()]))


@pytest.fixture(scope="module")
def withheld() -> list[Observation]:
    return _observed(spaces_of(WITHHELD), 40, seed=9)


@pytest.mark.parametrize("wild", [0.0, 0.05])
def test_constants_of_a_board_are_found(withheld: list[Observation], wild: float) -> None:
    fit = fit_constants(_observed(spaces_of(TAUGHT), 16, seed=1, wild=wild))
    assert fit.count == 128
    found = dict(fit.named_moves())
    assert found["streams.operations_per_cycle"] == pytest.approx(-0.7, abs=0.3)
    learned = tuple(fit.named_moves())
    assert _spread(withheld, learned) < 0.5 * _spread(withheld, ())
    # What was observed is known better than before, and the rest as well as before.
    for parameter, deviation in zip(fit.parameters, fit.deviations, strict=True):
        assert deviation <= parameter.spread * 1.001


@pytest.mark.parametrize("seed", range(3))
def test_ten_programs_do_no_harm(withheld: list[Observation], seed: int) -> None:
    few = _observed(spaces_of(TAUGHT)[:5], 2, seed)
    learned = tuple(fit_constants(few).named_moves())
    assert _spread(withheld, learned) < 1.1 * _spread(withheld, ())


def test_a_board_as_it_is_modelled_stays_as_it_is() -> None:
    spaces = spaces_of(TAUGHT)[:2]
    exact = [replace(one, seconds=one.estimate_s(())) for one in _observed(spaces, 8, seed=0)]
    assert fit_constants(exact).moves == pytest.approx([0.0] * len(fit_constants(exact).moves), abs=0.02)


def test_nothing_measured_moves_nothing() -> None:
    assert fit_constants([]).named_moves() == ()
