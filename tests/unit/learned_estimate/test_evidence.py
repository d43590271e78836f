"""Whether the learned estimate is believed: judged on tasks that taught nothing, and with caution."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from host.gensor import Gensor
from host.learned_estimate.estimate import LearnedEstimate, cautious_choice, expected_choice
from host.learned_estimate.evidence import Evidence, evidence_of
from host.learned_estimate.observation import EstimatedProgram, Observation, observations_of, values_of
from host.learned_estimate.process import SECONDS, Prediction, RuleProcess
from host.learned_estimate.search import first_program, search
from host.records import MODEL, Record, RecordOrigin
from host.records.store import profile_data
from host.schedules import DesignSpace
from host.statistics import Estimate
from tests.unit.learned_estimate.test_estimate import drawn
from tests.unit.tuning.simulated import dense_space, measured, profile

Truth = Callable[[DesignSpace, dict[str, int]], float]


def tall_is_slow(space: DesignSpace, values: dict[str, int]) -> float:
    return space.estimate_s(values) * (1.0 + 0.8 * math.log2(values["rows"]))


def observed(truth: Truth, tasks: int = 8, models: int = 4, programs: int = 12) -> list[Observation]:
    """Programs of some tasks, which belong to some models in turn."""
    return [
        Observation.of(space, values, truth(space, values), f"model{number % models}")
        for number in range(tasks)
        for space in [dense_space(f"task{number}")]
        for values in drawn(space, programs, seed=number)
    ]


def judged(truth: Truth, models: int = 4) -> Evidence:
    return evidence_of(RuleProcess(observed(truth, models=models)))


@pytest.mark.parametrize("models", [1, 4])
def test_what_holds_for_all_tasks_convinces(models: int) -> None:
    evidence = judged(tall_is_slow, models)
    assert evidence.convinces and evidence.speed.value > 1.1
    assert (evidence.rule, evidence.programs, evidence.speed.n) == ("tiled", 96, 8)


@pytest.mark.parametrize("seed", range(4))
def test_what_holds_for_no_other_task_does_not_convince(seed: int) -> None:
    generator = random.Random(seed)

    def luck(space: DesignSpace, values: dict[str, int]) -> float:
        return space.estimate_s(values) * generator.lognormvariate(0.0, 0.2)

    evidence = judged(luck)
    assert not evidence.convinces
    assert evidence.speed.value > 0.9


def test_few_tasks_do_not_convince() -> None:
    assert not evidence_of(RuleProcess(observed(tall_is_slow, tasks=4))).convinces
    nothing = evidence_of(RuleProcess(observed(tall_is_slow, programs=2)))
    assert nothing.speed.n == 0 and not nothing.convinces


def test_what_is_withheld_teaches_nothing() -> None:
    # The scales are those of all observations, so that only what was observed differs.
    target = replace(SECONDS, enough=10_000)
    known = observed(tall_is_slow, tasks=4)
    group = np.arange(24, 36)
    [(mean, covariance)] = RuleProcess(known, target).withheld([group])
    others = RuleProcess(known[:24] + known[36:], target)
    points = others.points([known[one].program for one in group])
    assert np.allclose(mean, others.mean(points), atol=1e-6)
    noise = others.scales.noise**2 * np.eye(len(group))
    assert np.allclose(covariance, others.covariance(points) + noise, atol=1e-6)


def test_of_proposed_programs_what_is_expected_counts() -> None:
    mean = np.log([1.0, 0.99, 0.9])
    unsure = Prediction(mean, np.diag([0.0, 1.0, 4.0]))
    assert expected_choice(unsure, 0) == 2
    assert cautious_choice(unsure, 0) == 0
    # The program that the estimate chose stays where no other one is below it.
    assert expected_choice(Prediction(np.log([1.0, 0.9, 0.9]), np.eye(3)), 2) == 2


def shown(value: float, agreement: float, bound: float | None, tasks: int = 8) -> bool:
    speed = Estimate(value, value - 0.1, value + 0.1, tasks)
    return Evidence("tiled", speed, 96, agreement=agreement, agreement_bound=bound).convinces


def test_corrections_that_agree_convince_unless_the_choices_are_slower() -> None:
    assert shown(1.02, 0.3, 0.2)
    assert not shown(0.99, 0.3, 0.2)
    assert not shown(1.02, 0.3, 0.05)
    assert not shown(1.02, 0.3, None)
    assert not shown(1.02, 0.3, 0.2, tasks=5)


def test_agreement_is_that_of_withheld_programs_with_their_times() -> None:
    right = judged(tall_is_slow)
    assert right.agreement > 0.6
    assert right.agreement_bound is not None and 0.4 < right.agreement_bound < right.agreement
    # Tasks on which a value does the opposite teach each other what is wrong.
    known = observed(tall_is_slow)
    opposite = [
        replace(one, seconds=one.program.estimate_s**2 / one.seconds) if number % 24 < 12 else one
        for number, one in enumerate(known)
    ]
    wrong = evidence_of(RuleProcess(opposite))
    assert wrong.agreement < 0.2 and not wrong.convinces


def test_tasks_whose_times_are_all_equal_agree_with_nothing() -> None:
    known = [replace(one, seconds=one.program.estimate_s) for one in observed(tall_is_slow)]
    evidence = evidence_of(RuleProcess(known))
    assert evidence.agreement == 0.0 and not evidence.convinces


def test_what_little_is_known_of_has_to_promise_more() -> None:
    mean = np.log([1.0, 0.9, 0.8])
    known = np.diag([1e-6, 1e-6, 1e-6])
    assert cautious_choice(Prediction(mean, known), 0) == 2
    # The third one may as well be much slower.
    assert cautious_choice(Prediction(mean, np.diag([1e-6, 1e-6, 0.25])), 0) == 1
    assert cautious_choice(Prediction(mean, np.diag([1e-6, 0.25, 0.25])), 0) == 0
    # What is unknown of both alike, as the level of the task, is no doubt.
    assert cautious_choice(Prediction(mean, known + 0.25), 0) == 2


def dear_transfers(tasks: int, factor: float = 4.0) -> list[Observation]:
    """Programs of which the transfers of a part take several times as long as estimated, and nothing else."""
    generator = random.Random(0)
    found = []
    for number in range(tasks):
        for _ in range(4):
            parts = {"compute": generator.uniform(1e-5, 1e-4), "L2": generator.uniform(1e-5, 1e-4)}
            values = {"rows": generator.randint(1, 16), "vectors": generator.randint(1, 8)}
            one = EstimatedProgram(f"task{number}", values, {**parts, "total": sum(parts.values())})
            found.append(Observation("tiled", one, parts["compute"] + factor * parts["L2"]))
    return found


def test_a_part_that_is_dearer_in_all_programs_is_learned_from_few() -> None:
    known = dear_transfers(12)
    taught, judged = known[:40], known[40:]
    programs = [one.program for one in judged]
    truth = np.log([one.seconds for one in judged])

    def error(process: RuleProcess) -> float:
        return float(np.std(process.predict(programs).mean - truth))

    learned = RuleProcess(taught)
    assert learned.scales.linear > 0.0
    assert error(learned) < 0.7 * error(RuleProcess(taught, replace(SECONDS, linear=())))


def test_a_task_that_is_far_off_as_a_whole_says_nothing_of_decisions() -> None:
    known = [
        replace(one, seconds=one.program.estimate_s * 8.0 ** (number // 12 % 2))
        for number, one in enumerate(observed(tall_is_slow))
    ]
    space = dense_space("new")
    programs = drawn(space, 24)
    corrections = LearnedEstimate(known).predict(space, programs).mean - np.log(
        [space.estimate_s(one) for one in programs]
    )
    assert float(np.ptp(corrections)) < 0.05


def test_a_search_finds_programs_of_the_space_and_orders_them() -> None:
    estimate = LearnedEstimate(observed(tall_is_slow))
    space = dense_space("new")
    [given] = [values_of(one) for one in Gensor().propose(space, profile(), (), 1, 0)]
    found = search(estimate, space, profile(), [given], 0)
    assert given in found and all(space.legal(one) for one in found)
    means = estimate.means(space, found)
    assert (np.diff(means) >= 0.0).all()
    assert len({tuple(one.items()) for one in found}) == len(found)
    # No neighbour of the best one is better.
    assert (estimate.means(space, list(space.neighbours(found[0]))) >= means[0]).all()
    values, speed = first_program(estimate, space, profile(), given, 0)
    assert tall_is_slow(space, given) / tall_is_slow(space, values) == pytest.approx(speed, rel=0.25)
    assert speed > 1.1


def test_records_teach_what_they_say_of_their_estimate() -> None:
    space = dense_space("new")
    values = drawn(space, 1)[0]

    def record(origin: RecordOrigin) -> Record:
        return Record(
            space.candidate(values, "random"), profile_data(profile()), measured(2.0), origin=origin
        )

    inside = RecordOrigin(model="net", measured_in=MODEL, estimate_parts_s=space.estimated(values))
    alone = RecordOrigin(estimate_parts_s=space.estimated(values))
    old = RecordOrigin(model="net", measured_in=MODEL)
    wild = [
        RecordOrigin(measured_in=MODEL, estimate_parts_s={"total": total}) for total in (0.0, 1e-300, 1e300)
    ]
    [found] = observations_of([record(inside), record(alone), record(old), *map(record, wild)])
    assert found.program.values == values and found.program.estimate_s == space.estimate_s(values)
    assert (found.seconds, found.rule, found.model) == (2.0, "tiled", "net")


def test_parts_from_elsewhere_that_no_estimate_has_change_nothing_beyond_their_bounds() -> None:
    known = observed(tall_is_slow)
    odd = replace(known[0].program, estimated_s={**known[0].program.estimated_s, "compute": 1e308, "x": 0.0})
    estimate = LearnedEstimate([replace(known[0], program=odd), *known[1:]])
    space = dense_space("new")
    assert np.isfinite(estimate.means(space, drawn(space, 8))).all()
