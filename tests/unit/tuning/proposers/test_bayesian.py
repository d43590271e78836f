"""Bayesian optimisation: what is measured next under the learned estimate."""

from __future__ import annotations

import math

import pytest

from host.errors import TlmError
from host.gensor import Gensor
from host.learned_estimate.estimate import LearnedEstimate
from host.learned_estimate.observation import Observation, values_of
from host.model import Candidate
from host.schedules.proposer import Estimate
from host.tuning.proposers.bayesian import BayesianProposer, LearningProposer, OpenTask, Source
from host.tuning.proposers.random_sampling import RandomSampling
from host.tuning.tasks import TuningTask
from tests.unit.learned_estimate.test_estimate import SPACE, board_s, drawn, observations
from tests.unit.tuning.simulated import Skilled, dense_space, measured, profile

SOURCES = (Source(Gensor(), 8), Source(RandomSampling(8), 24))


def best_of_nine(seed: int) -> tuple[float, float]:
    """Seconds of the best of nine programs: as the proposer asks, and the first nine by the estimate."""
    space = dense_space(f"task{seed}")
    programs = drawn(space, 100, seed)
    proposer = BayesianProposer(SOURCES)
    first = min(programs, key=space.estimate_s)
    history = [(space.candidate(first, "gensor"), measured(board_s(space, first)))]
    for number in range(8):
        proposer.learn([Observation.of(space, values_of(one), time.median_s) for one, time in history])
        [found] = proposer.propose(space, profile(), history, 1, seed + number)
        assert found.decisions not in {one.decisions for one, _ in history}
        assert found.proposer in ("gensor", "random", "bayesian") and space.legal(values_of(found))
        history.append((found, measured(board_s(space, values_of(found)))))
    by_estimate = min(board_s(space, one) for one in sorted(programs, key=space.estimate_s)[:9])
    return min(time.median_s for _, time in history), by_estimate


def test_the_proposer_finds_what_the_estimate_does_not_know() -> None:
    pairs = [best_of_nine(seed) for seed in range(6)]
    assert math.fsum(math.log(found / by_estimate) for found, by_estimate in pairs) < 0.0


def test_the_same_history_gives_the_same_proposals() -> None:
    programs = drawn(SPACE, 6)
    history = [(SPACE.candidate(one, "gensor"), measured(board_s(SPACE, one))) for one in programs]
    found = []
    for _ in range(2):
        proposer = BayesianProposer(SOURCES)
        proposer.learn(observations(SPACE, programs))
        found.append(proposer.propose(SPACE, profile(), history, 4, 1))
    assert found[0] == found[1] and len(set(found[0])) == 4


class Failing:
    """A source that cannot propose."""

    name = "tlm"

    def propose(self, *_: object) -> list[Candidate]:
        raise TlmError("its weights are damaged")


def names_of(proposer: BayesianProposer, count: int) -> set[str]:
    """Who made the proposals after some measurements."""
    known = [(SPACE.candidate(one, "gensor"), measured(board_s(SPACE, one))) for one in drawn(SPACE, count)]
    return {one.proposer for one in proposer.propose(SPACE, profile(), known, 60, 0)}


def test_programs_keep_the_name_of_their_source_and_a_source_may_come_later() -> None:
    sources = (Source(Gensor(), 8), Source(RandomSampling(8), 24, after=4))
    assert names_of(BayesianProposer(sources), 3) == {"gensor", "bayesian"}
    assert names_of(BayesianProposer(sources), 4) == {"gensor", "random", "bayesian"}


def test_a_source_that_fails_is_noted_and_can_be_replaced() -> None:
    notes: list[str] = []
    proposer = BayesianProposer((Source(Gensor(), 8), Source(Failing(), 8)), notes.append)
    assert isinstance(proposer, LearningProposer)
    assert names_of(proposer, 2) == {"gensor", "bayesian"}
    assert notes == ["tlm proposes nothing: its weights are damaged"]
    better = Skilled("tlm", 4)
    assert proposer.replace_source(better) and not proposer.replace_source(Skilled("stranger", 4))
    assert "tlm" in names_of(proposer, 2) and len(notes) == 1


class Ranked(Skilled):
    """A source that keeps the estimate which it is given."""

    estimate: Estimate | None = None

    def by(self, estimate: Estimate | None) -> Ranked:
        other = Ranked(self.name, 4)
        other.estimate = self.estimate = estimate
        return other


def test_a_source_that_takes_an_estimate_gets_what_the_board_has_taught() -> None:
    sources = [Ranked("tlm", 4), Ranked("tlm", 4)]
    proposer = BayesianProposer((Source(Gensor(), 8), Source(sources[0], 8)))
    assert proposer.replace_source(sources[1])
    programs = drawn(SPACE, 20)
    known = observations(SPACE, programs[:12])
    for source in sources:
        assert source.estimate is not None
        assert source.estimate(SPACE, programs[-1]) == pytest.approx(SPACE.estimate_s(programs[-1]))
    proposer.learn(known)
    taught = LearnedEstimate(known)
    for source in sources:
        assert source.estimate is not None
        assert source.estimate(SPACE, programs[-1]) == taught.cost_s(SPACE, programs[-1])
    assert taught.cost_s(SPACE, programs[-1]) != pytest.approx(SPACE.estimate_s(programs[-1]), rel=0.01)


def test_trials_go_to_the_tasks_that_take_long() -> None:
    tasks = [TuningTask(dense_space(f"across{weight}", weight), 1e-5) for weight in (1, 40)]
    history = []
    for task in tasks:
        first = min(drawn(task.space, 20), key=task.space.estimate_s)
        history.append([(task.space.candidate(first, "gensor"), measured(board_s(task.space, first)))])
    proposer = BayesianProposer(SOURCES)
    open_tasks = [OpenTask(task, known) for task, known in zip(tasks, history, strict=True)]
    promises = proposer.propose_across(open_tasks, profile(), 8, 0)
    assert len({(one.task, one.candidate.decisions) for one in promises}) == 8
    assert {one.task for one in promises} == {tasks[1].key}
    assert all(one.saving_s > 0.0 for one in promises)


def test_what_is_under_way_or_failed_is_not_proposed_and_a_task_begins_with_its_reference() -> None:
    reference, under_way, failed = (SPACE.candidate(one, "gensor") for one in drawn(SPACE, 3))
    task = TuningTask(SPACE, 1e-5, reference)
    proposer = BayesianProposer(SOURCES)
    begin = proposer.propose_across([OpenTask(task, (), (), (failed,))], profile(), 3, 0)
    assert begin[0].candidate.decisions == reference.decisions and begin[0].saving_s == 0.0
    later = proposer.propose_across([OpenTask(task, (), (reference, under_way), (failed,))], profile(), 30, 0)
    gone = {reference.decisions, under_way.decisions, failed.decisions}
    assert later and not gone & {one.candidate.decisions for one in later}
