"""Proposes the programs that the learned estimate expects most of (Bayesian optimisation)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from host.learned_estimate.estimate import LearnedEstimate
from host.learned_estimate.improvement import expected_improvement
from host.learned_estimate.observation import Observation, values_of
from host.learned_estimate.search import search
from host.model import Candidate, DeviceProfile, Measurement
from host.schedules.design import DesignSpace
from host.schedules.proposer import Proposer

# Of the programs that a search has looked at, those with the least means that are judged.
_JUDGED = 96
# The search begins with so many of the fastest programs too.
_BEST = 3


@runtime_checkable
class LearningProposer(Proposer, Protocol):
    """A proposer that is told of every measured program before it proposes."""

    def learn(self, observations: Sequence[Observation]) -> None:
        """Replace what was learned: measured programs of all tasks."""


class BayesianProposer:
    """Expected improvement under the estimate that the board has corrected; a `LearningProposer`.

    A single program for a task of which nothing is measured is the one with the least learned estimate.
    """

    name = "bayesian"

    def __init__(self, observations: Sequence[Observation] = ()) -> None:
        self.estimate = LearnedEstimate(observations)

    def learn(self, observations: Sequence[Observation]) -> None:
        """See `LearningProposer.learn`."""
        self.estimate = LearnedEstimate(observations)

    def propose(
        self,
        space: DesignSpace,
        profile: DeviceProfile,
        history: Sequence[tuple[Candidate, Measurement]],
        k: int,
        seed: int,
    ) -> list[Candidate]:
        """Up to `k` candidates that are not in the history, best first."""
        known = {candidate.decisions for candidate, _ in history}
        fastest = sorted(history, key=lambda pair: pair[1].median_s)[:_BEST]
        begin = [values_of(candidate) for candidate, _ in fastest]
        found = search(self.estimate, space, profile, [one for one in begin if space.legal(one)], seed)
        programs = [one for one in found if space.candidate(one, self.name).decisions not in known][:_JUDGED]
        measured = [measurement.median_s for _, measurement in history if measurement.trusted]
        if programs and (measured or k > 1):
            prediction = self.estimate.predict(space, programs)
            best_s = min(measured) if measured else math.exp(float(prediction.mean.min()))
            programs = [programs[one] for one in expected_improvement(prediction, best_s, k)]
        return [space.candidate(one, self.name, space.estimate_s(one)) for one in programs[:k]]
