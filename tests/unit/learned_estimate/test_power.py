"""The power of programs: what a few measured joules teach, and what is chosen by it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from host.learned_estimate.estimate import LearnedEstimate
from host.learned_estimate.evidence import evidence_for, evidence_of
from host.learned_estimate.observation import EstimatedProgram, Observation
from host.learned_estimate.power import LearnedPower
from host.learned_estimate.process import RuleProcess
from host.learned_estimate.taught import taught_about
from host.schedules import DesignSpace, space_for
from tests.unit.learned_estimate.test_estimate import drawn
from tests.unit.learned_estimate.test_taught import kernel
from tests.unit.tuning.simulated import dense_space, profile

THREADS = 4
Watts = Callable[[dict[str, int]], float]


def threaded(name: str) -> DesignSpace:
    """The programs of a small matrix product on one thread or four."""
    space = dense_space(name)
    return space_for(space.task, space.hardware, THREADS)


def busy_cores(values: dict[str, int]) -> float:
    """Watts of idling and of each core."""
    return 1.0 + 0.8 * values["parallel"]


def luck(values: dict[str, int]) -> float:
    """Watts in which nothing is to be learned."""
    return 3.0 * random.Random(str(sorted(values.items()))).lognormvariate(0.0, 0.2)


def measured(space: DesignSpace, programs: list[dict[str, int]], watts: Watts) -> list[Observation]:
    """Programs that take as long as estimated, with 2% of noise in their watts."""
    noise = random.Random(space.task.name)
    return [
        Observation.of(space, one, space.estimate_s(one), "net", watts(one) * noise.lognormvariate(0.0, 0.02))
        for one in programs
    ]


def errors(
    known: list[Observation], space: DesignSpace, programs: list[dict[str, int]], watts: Watts
) -> tuple[float, float]:
    """Root mean square errors of predicted watts, and of the mean of the known ones of the task."""
    power = LearnedPower(known)
    estimated = [EstimatedProgram.of(space, one) for one in programs]
    truth = np.log([watts(one) for one in programs])
    found = power.predict(space.rule.name, estimated).mean + math.log(power.reference_w)
    mean = np.mean([math.log(one.watts or 0.0) for one in known if one.program.task == estimated[0].task])
    return float(np.sqrt(np.mean((found - truth) ** 2))), float(np.sqrt(np.mean((mean - truth) ** 2)))


@pytest.mark.parametrize("seed", range(6))
def test_ten_programs_teach_what_cores_take(seed: int) -> None:
    space = threaded(f"power{seed}")
    programs = drawn(space, 60, seed)
    learned, constant = errors(measured(space, programs[:10], busy_cores), space, programs[10:], busy_cores)
    assert learned < 0.5 * constant


def test_where_nothing_is_to_be_learned_watts_are_nearly_constant() -> None:
    """Ten programs may seem to teach; what they seem to teach is little, and forty do not."""
    for count, most in ((10, 1.2), (40, 1.05)):
        logs = []
        for seed in range(6):
            space = threaded(f"luck{seed}")
            programs = drawn(space, 80, seed)
            learned, constant = errors(measured(space, programs[:count], luck), space, programs[40:], luck)
            logs.append(math.log(learned / constant))
        assert math.exp(math.fsum(logs) / len(logs)) < most


def test_watts_that_the_process_does_not_explain_are_constant() -> None:
    space = threaded("not explained")
    programs = drawn(space, 60)
    power = LearnedPower(measured(space, programs[:30], luck))
    rule = power.rules["tiled"]
    estimated = [EstimatedProgram.of(space, one) for one in programs[30:]]
    worse = replace(rule.programs, learned=2.0 * rule.programs.constant)
    rule.programs = worse
    assert not worse.allows and len(set(power.means("tiled", estimated).tolist())) == 1
    assert np.array_equal(power.predict("tiled", estimated).mean, power.means("tiled", estimated))
    # Of another task, which has to be shown.
    other = threaded("other")
    unknown = [replace(one, task=other.task.workload_hash) for one in estimated]
    assert not rule.tasks.convinces and (power.means("tiled", unknown) == 0.0).all()


def test_predictions_say_how_sure_they_are() -> None:
    space = threaded("sure")
    programs = drawn(space, 60)
    power = LearnedPower(measured(space, programs[:20], busy_cores))
    estimated = [EstimatedProgram.of(space, one) for one in programs]
    deviation = np.sqrt(np.diag(power.predict("tiled", estimated).covariance))
    assert (deviation > 0.0).all() and deviation[:20].mean() < deviation[20:].mean()
    # Nothing is known of other rules but how much watts differ on this board.
    other = power.predict("rowwise", estimated)
    assert (other.mean == 0.0).all() and (np.diag(other.covariance) > 0.0).all()


def test_other_tasks_are_taught_too() -> None:
    known = [
        one
        for number in range(8)
        for one in measured(
            threaded(f"task{number}"), drawn(threaded(f"task{number}"), 8, number), busy_cores
        )
    ]
    power = LearnedPower(known)
    assert power.rules["tiled"].tasks.convinces
    space = threaded("new")
    one, four = ({**drawn(space, 1)[0], "parallel": count} for count in (1, THREADS))
    estimated = [EstimatedProgram.of(space, values) for values in (one, four)]
    low, high = power.predict("tiled", estimated).mean
    assert high - low == pytest.approx(math.log(busy_cores(four) / busy_cores(one)), rel=0.3)


def test_without_joules_every_objective_is_latency() -> None:
    space = threaded("dark")
    programs = drawn(space, 30)
    known = [replace(one, watts=None) for one in measured(space, programs[:20], busy_cores)]
    assert LearnedPower.of(known) is None
    by_time, by_energy = LearnedEstimate(known), LearnedEstimate(known, 1.0)
    assert np.array_equal(by_time.means(space, programs), by_energy.means(space, programs))
    assert evidence_for(by_energy) == evidence_for(by_time)
    # Watts of another board say nothing of this one.
    elsewhere = [replace(one, board="other") for one in measured(space, programs, busy_cores)]
    assert LearnedPower.of(elsewhere) is None


@pytest.mark.parametrize("exponent", [0.5, 1.0])
def test_the_cost_is_seconds_times_a_power_of_watts(exponent: float) -> None:
    space = threaded("cost")
    programs = drawn(space, 60)
    known = measured(space, programs[:40], busy_cores)
    estimate = LearnedEstimate(known, exponent)
    assert estimate.power is not None
    costs = [
        math.log(space.estimate_s(one) * (busy_cores(one) / estimate.power.reference_w) ** exponent)
        for one in programs
    ]
    assert np.allclose(estimate.predict(space, programs).mean, costs, atol=0.1)
    assert np.allclose(estimate.means(space, programs), estimate.predict(space, programs).mean)
    time = LearnedEstimate(known).predict(space, programs)
    assert (np.diag(estimate.predict(space, programs).covariance) > np.diag(time.covariance)).all()


def test_the_number_of_threads_teaches_time_too() -> None:
    space = threaded("slow")
    programs = drawn(space, 60)

    def seconds(values: dict[str, int]) -> float:
        return space.estimate_s(values) * (1.3 if values["parallel"] == THREADS else 1.0)

    estimate = LearnedEstimate([Observation.of(space, one, seconds(one)) for one in programs[:40]])
    truth = np.log([seconds(one) for one in programs[40:]])
    assert float(np.std(estimate.means(space, programs[40:]) - truth)) < 0.05


def test_evidence_is_of_the_cost() -> None:
    """Tall tiles take as long as estimated, and more watts."""

    def dear(values: dict[str, int]) -> float:
        return 1.0 + 0.8 * math.log2(values["rows"])

    spaces = [threaded(f"dear{number}") for number in range(8)]
    known = [
        one for number, space in enumerate(spaces) for one in measured(space, drawn(space, 12, number), dear)
    ]
    by_energy = LearnedEstimate(known, 1.0)
    [evidence] = evidence_for(by_energy)
    assert evidence.convinces and evidence.speed.value > 1.1
    [by_time] = evidence_for(LearnedEstimate(known))
    assert not by_time.convinces
    assert evidence_of(RuleProcess(known)) == by_time


def test_explain_says_what_is_known_of_power() -> None:
    space = threaded("explained")
    known = measured(space, drawn(space, 30), busy_cores)
    taught = taught_about([kernel("mine")], known, profile(), 0)
    [power] = taught.power
    assert (power.rule, power.programs) == ("tiled", 30)
    assert power.least_w < power.median_w < power.most_w
    assert power.same_tasks.allows and power.same_tasks.learned < power.same_tasks.constant
    [_, _, table] = taught.tables()
    [row] = [dict(zip(table.columns, one, strict=True)) for one in table.rows]
    assert row["programs"] == 30 and row["same_tasks_used"] is True and row["other_tasks_used"] is False
    without = [replace(one, watts=None) for one in known]
    assert taught_about([kernel("mine")], without, profile(), 0).power == ()


def test_no_programs_have_no_watts() -> None:
    space = threaded("none")
    programs = drawn(space, 12)
    known = measured(space, programs, busy_cores)
    for power in (LearnedPower(known), LearnedPower(measured(space, programs[:1], luck))):
        assert power.means(space.rule.name, []).shape == (0,)
        assert power.predict(space.rule.name, []).covariance.shape == (0, 0)
    estimate = LearnedEstimate(known, 1.0)
    assert estimate.means(space, []).shape == estimate.predict(space, []).mean.shape == (0,)


def test_a_program_is_the_same_in_whatever_order_its_decisions_are() -> None:
    space = threaded("order")
    programs = drawn(space, 12)
    known = measured(space, programs, busy_cores)
    backwards = [dict(reversed(one.items())) for one in programs]
    again = measured(space, backwards, busy_cores)
    assert EstimatedProgram.of(space, programs[0]).key == EstimatedProgram.of(space, backwards[0]).key
    # Withheld together: else one measurement of a program judges what the other one taught.
    by_name, by_both = LearnedPower([*known, *known]), LearnedPower([*known, *again])
    rule = space.rule.name
    assert by_both.rules[rule].programs == by_name.rules[rule].programs
    few = [one for order in (programs[:3], backwards[:3]) for one in order]
    [evidence] = evidence_for(LearnedEstimate([Observation.of(space, one, 1e-5, "net") for one in few]))
    assert evidence.speed.n == 0, "three programs are too few to say anything"


def test_a_program_without_a_number_of_threads_has_one() -> None:
    space = threaded("threads")
    programs = drawn(space, 20)
    one, many = ({**programs[0], "parallel": threads} for threads in (1, THREADS))
    without = {name: value for name, value in one.items() if name != "parallel"}
    estimated = space.estimated(one)
    process = RuleProcess(measured(space, programs, busy_cores))
    points = [
        process.points([EstimatedProgram(space.task.workload_hash, values, estimated)])
        for values in (one, without, many)
    ]
    assert (points[0].decisions == points[1].decisions).all()
    assert (points[0].linear == points[1].linear).all()
    assert not (points[0].decisions == points[2].decisions).all()
