"""Proposes the programs that the learned estimate expects most of (Bayesian optimisation)."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

from host.errors import ScheduleError
from host.gensor import Gensor
from host.model import Candidate, DeviceProfile, Measurement
from host.schedules.api import Decisions
from host.schedules.design import DesignSpace
from host.schedules.proposer import Proposer
from host.tuning.proposers.residual import LearnedEstimate, Observation, expected_improvement

# Programs that are judged for a task: constructed ones, neighbours of the best measured ones, random ones.
_CONSTRUCTED, _BEST, _RANDOM = 8, 3, 48


@runtime_checkable
class LearningProposer(Proposer, Protocol):
    """A proposer that is told of every measured program before it proposes."""

    def learn(self, observations: Sequence[Observation]) -> None:
        """Replace what was learned: measured programs of all tasks."""


class BayesianProposer:
    """Expected improvement under the estimate that the board has corrected; a `LearningProposer`."""

    name = "bayesian"

    def __init__(self) -> None:
        self._estimate = LearnedEstimate(())
        self._constructed: dict[str, list[Decisions]] = {}

    def learn(self, observations: Sequence[Observation]) -> None:
        """See `LearningProposer.learn`."""
        self._estimate = LearnedEstimate(observations)

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
        pool: dict[object, Decisions] = {}
        for values in self._pool(space, profile, history, seed):
            decisions = space.candidate(values, self.name).decisions
            if decisions not in known:
                pool.setdefault(decisions, values)
        if not pool:
            return []
        programs = list(pool.values())
        prediction = self._estimate.predict(space, programs)
        measured = [measurement.median_s for _, measurement in history if measurement.trusted]
        # Without a measurement, the least expected time is what there is to improve on.
        best_s = min(measured) if measured else math.exp(float(prediction.mean.min()))
        return [
            space.candidate(programs[index], self.name, space.estimate_s(programs[index]))
            for index in expected_improvement(prediction, best_s, k)
        ]

    def _pool(
        self,
        space: DesignSpace,
        profile: DeviceProfile,
        history: Sequence[tuple[Candidate, Measurement]],
        seed: int,
    ) -> Iterator[Decisions]:
        """Programs to choose from; some come more than once."""
        task = space.task.workload_hash
        fastest = sorted(history, key=lambda pair: pair[1].median_s)
        for candidate, _ in fastest[:_BEST]:
            if space.legal(values_of(candidate)):
                yield from space.neighbours(values_of(candidate))
        if task not in self._constructed:
            found = Gensor().propose(space, profile, (), _CONSTRUCTED, seed=0)
            self._constructed[task] = [values_of(one) for one in found]
        yield from self._constructed[task]
        generator = random.Random(f"{task}/{seed}/{len(history)}")
        for _ in range(_RANDOM):
            try:
                yield space.sample(generator)
            except ScheduleError:
                return


def values_of(candidate: Candidate) -> dict[str, int]:
    """The value of each decision of a program."""
    return {name: value for name, value in candidate.decisions if isinstance(value, int)}
