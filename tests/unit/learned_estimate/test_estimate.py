"""The learned estimate: what a board's programs teach about other programs, and what is asked next."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from host.learned_estimate.estimate import LearnedEstimate
from host.learned_estimate.improvement import Outlook, most_promising
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


def positions(outlook: Outlook, count: int) -> list[int]:
    """What is measured next of one task."""
    return [position for _, position, _ in most_promising([outlook], count)]


def test_what_is_certain_and_no_better_is_not_asked_first() -> None:
    mean = np.log([1.0, 0.9, 1.1])
    certain = Prediction(mean, np.diag([1e-8, 1e-8, 1e-8]))
    assert positions(Outlook(certain, [0]), 1) == [1]
    # The third one may be much better; the second one surely is a little.
    unsure = Prediction(mean, np.diag([1e-8, 1e-8, 1.0]))
    assert positions(Outlook(unsure, [0]), 2) == [2, 1]
    assert positions(Outlook(unsure, [0, 1, 2]), 1) == []


def test_the_expected_saving_is_that_of_a_lognormal_time() -> None:
    mean, deviation = 0.1, 0.3
    prediction = Prediction(np.array([0.0, mean]), np.diag([0.0, deviation**2]))
    [(_, _, saving_s)] = most_promising([Outlook(prediction, [0], weight=2.0)], 1)
    drawn = np.exp(np.random.default_rng(0).normal(mean, deviation, 400_000))
    assert saving_s == pytest.approx(2.0 * np.maximum(0.0, 1.0 - drawn).mean(), rel=0.02)


def test_what_is_unknown_of_a_whole_task_promises_nothing() -> None:
    # Both programs stand or fall together: whichever way, the second one is a little slower.
    together = Prediction(np.log([1.0, 1.05]), np.full((2, 2), 0.25))
    apart = Prediction(np.log([1.0, 1.05]), np.diag([0.125, 0.125]))
    savings = [most_promising([Outlook(one, [0])], 1)[0][2] for one in (together, apart)]
    assert savings[0] < 1e-6 < 0.05 < savings[1]


def test_no_two_choices_ask_the_same() -> None:
    # The first two stand or fall together, and the third one is a little worse by itself.
    covariance = np.array(
        [[1e-8, 0.0, 0.0, 0.0], [0.0, 1.0, 0.999, 0.0], [0.0, 0.999, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
    )
    prediction = Prediction(np.log([1.0, 1.0, 1.0, 1.01]), 0.01 * covariance)
    assert sorted(positions(Outlook(prediction, [0]), 2)) in ([1, 3], [2, 3])
    # The same where one of them is being measured.
    assert positions(Outlook(prediction, [0], [1]), 1) == [3]


def test_trials_go_to_the_tasks_where_they_save_most() -> None:
    def outlook(seconds: float, weight: float) -> Outlook:
        mean = math.log(seconds) + np.array([0.0, 0.0, 0.01, 0.02])
        return Outlook(Prediction(mean, np.diag([1e-8, 0.01, 0.01, 0.01])), [0], weight=weight)

    tasks = [outlook(1e-3, 1.0), outlook(1e-4, 40.0), outlook(1e-6, 3.0)]
    chosen = most_promising(tasks, 6)
    assert {task for task, _, _ in chosen[:3]} == {1} and {task for task, _, _ in chosen} == {0, 1}
    savings = [saving for _, _, saving in chosen]
    assert savings == sorted(savings, reverse=True)
    tasks = [outlook(1e-3, 1.0), outlook(1e-3, 1.5)]
    # Where the program to beat has to be measured too, the same trials bring half as much.
    assert [task for task, _, _ in most_promising(tasks, 2, dear=[1])] == [0, 0]
