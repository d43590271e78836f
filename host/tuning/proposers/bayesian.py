"""Proposes the programs that the learned estimate expects most of (Bayesian optimisation)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from host.errors import EdgeError
from host.learned_estimate.estimate import LearnedEstimate
from host.learned_estimate.improvement import expected_improvement
from host.learned_estimate.observation import Observation, values_of
from host.model import Candidate, DeviceProfile, Measurement
from host.schedules.design import DesignSpace
from host.schedules.proposer import Proposer
from host.tuning.proposers.caching import CachingProposer

# The neighbours of so many of the fastest programs are judged.
_BEST = 3


@runtime_checkable
class LearningProposer(Proposer, Protocol):
    """A proposer that receives every measured program before it proposes."""

    def learn(self, observations: Sequence[Observation]) -> None:
        """Replace what was learned: measured programs of all tasks, those of the present model last."""

    def replace_source(self, proposer: Proposer) -> bool:
        """Replace the source of the same name; False if there is none."""


@dataclass(frozen=True)
class Source:
    """A proposer or a search, whose programs are judged.

    Attributes:
        proposer: whose name the programs keep.
        count: of its unmeasured programs.
        after: measured programs of a task from which on it is asked.
    """

    proposer: Proposer
    count: int
    after: int = 0


class BayesianProposer:
    """Expected improvement under the estimate that the board has corrected; a `LearningProposer`.

    Args:
        sources: who makes the programs that are judged, besides neighbours of the fastest ones.
        note: receives a line when a source fails.
    """

    name = "bayesian"

    def __init__(self, sources: Sequence[Source], note: Callable[[str], None] = lambda text: None) -> None:
        self._sources = {one.proposer.name: _cached(one) for one in sources}
        self._note = note
        self._estimate = LearnedEstimate(())

    def learn(self, observations: Sequence[Observation]) -> None:
        """See `LearningProposer.learn`."""
        self._estimate = LearnedEstimate(observations)

    def replace_source(self, proposer: Proposer) -> bool:
        """See `LearningProposer.replace_source`."""
        known = self._sources.get(proposer.name)
        if known is not None:
            self._sources[proposer.name] = _cached(replace(known, proposer=proposer))
        return known is not None

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
        pool: dict[object, Candidate] = {}
        for candidate in self._pool(space, profile, history, seed):
            if candidate.decisions not in known:
                pool.setdefault(candidate.decisions, candidate)
        if not pool:
            return []
        candidates = list(pool.values())
        prediction = self._estimate.predict(space, [values_of(one) for one in candidates])
        measured = [measurement.median_s for _, measurement in history if measurement.trusted]
        # Without a measurement, the least expected time is what there is to improve on.
        best_s = min(measured) if measured else math.exp(float(prediction.mean.min()))
        chosen = [candidates[index] for index in expected_improvement(prediction, best_s, k)]
        return [replace(one, estimate_s=space.estimate_s(values_of(one))) for one in chosen]

    def _pool(
        self,
        space: DesignSpace,
        profile: DeviceProfile,
        history: Sequence[tuple[Candidate, Measurement]],
        seed: int,
    ) -> Iterator[Candidate]:
        """Programs to choose from; some come more than once."""
        for source in self._sources.values():
            if len(history) < source.after:
                continue
            try:
                yield from source.proposer.propose(space, profile, history, source.count, seed)
            except (EdgeError, RuntimeError, ValueError) as error:
                self._note(f"{source.proposer.name} proposes nothing: {' '.join(str(error).split())}")
        fastest = sorted(history, key=lambda pair: pair[1].median_s)
        for candidate, _ in fastest[:_BEST]:
            if space.legal(values_of(candidate)):
                for values in space.neighbours(values_of(candidate)):
                    yield space.candidate(values, self.name)


def _cached(source: Source) -> Source:
    return replace(source, proposer=CachingProposer(source.proposer))
