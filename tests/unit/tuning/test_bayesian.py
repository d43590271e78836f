"""Bayesian optimisation: what is measured next under the learned estimate."""

from __future__ import annotations

import math

from host.learned_estimate.observation import Observation, values_of
from host.tuning.proposers.bayesian import BayesianProposer
from tests.unit.learned_estimate.test_estimate import SPACE, board_s, drawn, observations
from tests.unit.tuning.simulated import dense_space, measured, profile


def best_of_nine(seed: int) -> tuple[float, float]:
    """Seconds of the best of nine programs: as the proposer asks, and the first nine by the estimate."""
    space = dense_space(f"task{seed}")
    programs = drawn(space, 100, seed)
    proposer = BayesianProposer()
    first = min(programs, key=space.estimate_s)
    history = [(space.candidate(first, "gensor"), measured(board_s(space, first)))]
    for number in range(8):
        proposer.learn([Observation.of(space, values_of(one), time.median_s) for one, time in history])
        [found] = proposer.propose(space, profile(), history, 1, seed + number)
        assert found.decisions not in {one.decisions for one, _ in history}
        assert found.proposer == "bayesian" and space.legal(values_of(found))
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
        proposer = BayesianProposer()
        proposer.learn(observations(SPACE, programs))
        found.append(proposer.propose(SPACE, profile(), history, 4, 1))
    assert found[0] == found[1] and len(set(found[0])) == 4
