"""The learned estimate: what a board's programs teach about other programs, and what is asked next."""

from __future__ import annotations

import math
import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from host.learned_estimate.estimate import LearnedEstimate
from host.learned_estimate.improvement import expected_improvement
from host.learned_estimate.observation import Observation
from host.learned_estimate.process import Prediction
from host.schedules import DesignSpace
from tests.unit.tuning.simulated import dense_space

SPACE = dense_space("known")


def drawn(space: DesignSpace, count: int, seed: int = 0) -> list[dict[str, int]]:
    """Different programs."""
    generator = random.Random(seed)
    found: dict[object, dict[str, int]] = {}
    while len(found) < count:
        values = space.sample(generator)
        found[tuple(values.items())] = values
    return list(found.values())


def board_s(space: DesignSpace, values: dict[str, int]) -> float:
    """A board on which wide tiles cost more than the estimate says, and everything takes twice as long."""
    return 2.0 * space.estimate_s(values) * (1.0 + 0.3 * math.log2(values["vectors"]))


def observations(space: DesignSpace, programs: list[dict[str, int]]) -> list[Observation]:
    return [Observation.of(space, values, board_s(space, values)) for values in programs]


def error(estimate: LearnedEstimate, space: DesignSpace, programs: list[dict[str, int]]) -> float:
    """Spread of the predicted over the true times, in logarithms: what matters for an order."""
    truth = np.log([board_s(space, values) for values in programs])
    return float(np.std(estimate.predict(space, programs).mean - truth))


def test_without_measurements_the_estimate_is_that_of_the_space() -> None:
    programs = drawn(SPACE, 5)
    prediction = LearnedEstimate(()).predict(SPACE, programs)
    assert np.allclose(np.exp(prediction.mean), [SPACE.estimate_s(values) for values in programs])
    assert (np.diag(prediction.covariance) > 0).all()


def test_programs_of_a_task_teach_the_others() -> None:
    programs = drawn(SPACE, 60)
    known, unknown = programs[:30], programs[30:]
    taught = LearnedEstimate(observations(SPACE, known))
    assert error(taught, SPACE, unknown) < 0.5 * error(LearnedEstimate(()), SPACE, unknown)
    # The level of the task is learned too, with more certainty than before.
    prediction, prior = taught.predict(SPACE, unknown), LearnedEstimate(()).predict(SPACE, unknown)
    assert abs(float(np.median(prediction.mean - np.log([board_s(SPACE, one) for one in unknown])))) < 0.1
    assert float(np.diag(prediction.covariance).max()) < float(np.diag(prior.covariance).min())


def test_programs_of_other_tasks_teach_less_but_something() -> None:
    programs = drawn(SPACE, 60)
    others = [dense_space(f"other{number}") for number in range(4)]
    elsewhere = LearnedEstimate([one for other in others for one in observations(other, programs[:40])])
    own = LearnedEstimate(observations(SPACE, programs[:40]))
    unknown = programs[40:]
    before = error(LearnedEstimate(()), SPACE, unknown)
    assert error(own, SPACE, unknown) < error(elsewhere, SPACE, unknown) < 0.9 * before


def test_a_wild_time_does_not_spoil_the_rest() -> None:
    programs = drawn(SPACE, 60)
    taught = observations(SPACE, programs[:30])
    taught[3] = Observation.of(SPACE, taught[3].program.values, 1000.0 * taught[3].seconds)
    unknown = programs[30:]
    assert error(LearnedEstimate(taught), SPACE, unknown) < error(LearnedEstimate(()), SPACE, unknown)


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 40), st.integers(0, 3))
def test_any_number_of_measurements_gives_a_usable_estimate(count: int, seed: int) -> None:
    programs = drawn(SPACE, count + 3, seed)
    # The same program twice, as after a confirmation.
    taught = observations(SPACE, [*programs[:count], programs[0]])
    prediction = LearnedEstimate(taught).predict(SPACE, programs)
    assert np.isfinite(prediction.mean).all()
    assert (np.linalg.eigvalsh(prediction.covariance) > -1e-6).all()


def test_what_is_certain_and_no_better_is_not_asked() -> None:
    mean = np.log([1.0, 0.9, 1.1])
    certain = Prediction(mean, np.diag([1e-8, 1e-8, 1e-8]))
    assert expected_improvement(certain, 1.0, 1) == [1]
    # The third one may be much better; the second one surely is a little.
    unsure = Prediction(mean, np.diag([1e-8, 1e-8, 1.0]))
    assert expected_improvement(unsure, 1.0, 2) == [2, 1]


def test_no_two_choices_ask_the_same() -> None:
    # The first two stand or fall together, and the third one is a little worse by itself.
    covariance = np.array([[1.0, 0.999, 0.0], [0.999, 1.0, 0.0], [0.0, 0.0, 1.0]]) * 0.01
    prediction = Prediction(np.log([1.0, 1.0, 1.01]), covariance)
    assert sorted(expected_improvement(prediction, 1.0, 2)) in ([0, 2], [1, 2])
