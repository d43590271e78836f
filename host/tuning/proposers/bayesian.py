"""Proposes the programs that the learned estimate expects most of (Bayesian optimisation)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from host.errors import EdgeError
from host.learned_estimate.estimate import LearnedEstimate
from host.learned_estimate.improvement import Outlook, most_promising
from host.learned_estimate.observation import Observation, values_of
from host.learned_estimate.search import descended
from host.model import Candidate, DeviceProfile, Measurement
from host.schedules.api import Decisions
from host.schedules.design import DesignSpace
from host.schedules.proposer import EstimatingProposer, Proposer
from host.tuning.proposers.caching import CachingProposer
from host.tuning.tasks import TuningTask

# The neighbours of so many of the best programs are judged.
_BEST = 3
# Of what a search by the learned cost looks at, so many programs are judged.
_DESCENDED = 32


@dataclass(frozen=True, eq=False)
class OpenTask:
    """A task that trials may be given to.

    Attributes:
        task: with its design space.
        history: its measured programs.
        under_way: programs that are being measured.
        failed: programs that do not build or run.
        timed: programs of which only the time was measured, where their energy counts.
    """

    task: TuningTask
    history: Sequence[tuple[Candidate, Measurement]]
    under_way: Sequence[Candidate] = ()
    failed: Sequence[Candidate] = ()
    timed: Sequence[Candidate] = ()


@dataclass(frozen=True)
class Promise:
    """A program to measure.

    Attributes:
        task: key of its task.
        candidate: the program.
        saving_s: seconds of one run of the model that it is expected to save.
    """

    task: str
    candidate: Candidate
    saving_s: float


@runtime_checkable
class LearningProposer(Proposer, Protocol):
    """A proposer that receives every measured program before it proposes."""

    def learn(self, observations: Sequence[Observation]) -> None:
        """Replace what was learned: measured programs of all tasks, those of the present model last."""

    def replace_source(self, proposer: Proposer) -> bool:
        """Replace the source of the same name; False if there is none."""

    def propose_across(
        self, tasks: Sequence[OpenTask], profile: DeviceProfile, count: int, seed: int
    ) -> list[Promise]:
        """Programs for so many trials, of the tasks where they are worth most; fewer if there are no more."""


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


@dataclass(frozen=True, eq=False)
class _JudgedTask:
    """The programs of a task with what they promise.

    Attributes:
        task: with its design space.
        candidates: measured ones, those under way, and others.
        outlook: of the candidates.
        start: position of the one to begin with.
        unknown: whether none is measured or under way.
    """

    task: TuningTask
    candidates: Sequence[Candidate]
    outlook: Outlook
    start: int
    unknown: bool

    def promise(self, position: int, saving_s: float) -> Promise:
        """One of the candidates, with its estimate."""
        one = self.candidates[position]
        estimate_s = self.task.space.estimate_s(values_of(one))
        return Promise(self.task.key, replace(one, estimate_s=estimate_s), saving_s)


class BayesianProposer:
    """Expected improvement under the estimate that the board has corrected; a `LearningProposer`.

    Args:
        sources: who makes the programs that are judged, besides neighbours of the fastest ones. Those that
            take an estimate get the learned one, as it is when they are asked.
        note: receives a line when a source fails.
        exponent: of watts in the cost whose improvement is expected (`host.options.objective`).
    """

    name = "bayesian"

    def __init__(
        self,
        sources: Sequence[Source],
        note: Callable[[str], None] = lambda text: None,
        exponent: float = 0.0,
    ) -> None:
        self._exponent = exponent
        self._note = note
        self._estimate = LearnedEstimate((), exponent)
        self._sources = {one.proposer.name: self._cached(one) for one in sources}

    def learn(self, observations: Sequence[Observation]) -> None:
        """See `LearningProposer.learn`."""
        self._estimate = LearnedEstimate(observations, self._exponent)

    def replace_source(self, proposer: Proposer) -> bool:
        """See `LearningProposer.replace_source`."""
        known = self._sources.get(proposer.name)
        if known is not None:
            self._sources[proposer.name] = self._cached(replace(known, proposer=proposer))
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
        task = TuningTask(space, 1.0, energy=bool(self._exponent))
        judged = self._judged(OpenTask(task, history), profile, seed)
        if judged is None:
            return []
        first = [] if history else [judged.candidates[judged.start]]
        chosen = most_promising([judged.outlook], k - len(first))
        found = [*first, *(judged.candidates[position] for _, position, _ in chosen)]
        return [replace(one, estimate_s=space.estimate_s(values_of(one))) for one in found[:k]]

    def propose_across(
        self, tasks: Sequence[OpenTask], profile: DeviceProfile, count: int, seed: int
    ) -> list[Promise]:
        """See `LearningProposer.propose_across`.

        A task that nothing is known of begins with the program to beat, which promises nothing by itself.
        """
        judged = [one for task in tasks if (one := self._judged(task, profile, seed)) is not None]
        unknown = {number for number, one in enumerate(judged) if one.unknown}
        found = []
        for number, position, saving_s in most_promising([one.outlook for one in judged], count, unknown):
            own = judged[number]
            if number in unknown:
                unknown.remove(number)
                found.append(own.promise(own.start, 0.0))
            found.append(own.promise(position, saving_s))
        if len(found) < count:
            # Tasks with one program.
            found += [judged[number].promise(judged[number].start, 0.0) for number in sorted(unknown)]
        return found[:count]

    def _judged(self, open_task: OpenTask, profile: DeviceProfile, seed: int) -> _JudgedTask | None:
        """The programs of a task with what they promise; None if there is no program to choose."""
        task, history = open_task.task, open_task.history
        settled = {candidate.decisions: candidate for candidate, _ in history}
        under_way = {one.decisions: one for one in open_task.under_way if one.decisions not in settled}
        known = {*settled, *under_way, *(one.decisions for one in open_task.failed)}
        pool: dict[object, Candidate] = {}
        for candidate in self._pool(open_task, profile, seed):
            if candidate.decisions not in known:
                pool.setdefault(candidate.decisions, candidate)
        begin = None if settled or under_way else task.reference
        if begin is not None and begin.decisions in known:
            begin = None
        if begin is not None:
            pool.pop(begin.decisions, None)
            pool = {begin.decisions: begin, **pool}
        if not pool:
            return None
        candidates = [*settled.values(), *under_way.values(), *pool.values()]
        prediction = self._estimate.predict(task.space, [values_of(one) for one in candidates])
        start = 0 if begin is not None else int(prediction.mean.argmin())
        measuring = range(len(settled), len(settled) + len(under_way))
        beaten = list(range(len(settled))) or list(measuring) or [start]
        outlook = Outlook(prediction, beaten, measuring, task.weight)
        return _JudgedTask(task, candidates, outlook, start, not settled and not under_way)

    def _pool(self, open_task: OpenTask, profile: DeviceProfile, seed: int) -> Iterator[Candidate]:
        """Programs to choose from; some come more than once."""
        space, history = open_task.task.space, open_task.history
        if not open_task.task.energy or self._estimate.power is None:
            yield from self._proposed(open_task, profile, seed)
            return
        # Who proposes looks for fast programs: those of little energy may be far from all of them.
        found = list(self._proposed(open_task, profile, seed))
        yield from found
        begin = [values_of(one) for one in (*(one for one, _ in history), *found)]
        legal = [values for values in begin if space.legal(values)]
        for values in descended(self._estimate, space, legal)[:_DESCENDED] if legal else ():
            yield space.candidate(values, self.name)

    def _proposed(self, open_task: OpenTask, profile: DeviceProfile, seed: int) -> Iterator[Candidate]:
        """The programs of the sources, those that were only timed, and neighbours of the best ones."""
        space, history = open_task.task.space, open_task.history
        yield from filter(space.holds, open_task.timed)
        for source in self._sources.values():
            if len(history) < source.after:
                continue
            try:
                yield from source.proposer.propose(space, profile, history, source.count, seed)
            except (EdgeError, RuntimeError, ValueError) as error:
                self._note(f"{source.proposer.name} proposes nothing: {' '.join(str(error).split())}")
        for candidate in self._best(space, history)[:_BEST]:
            if space.legal(values_of(candidate)):
                for values in space.neighbours(values_of(candidate)):
                    yield space.candidate(values, self.name)

    def _best(self, space: DesignSpace, history: Sequence[tuple[Candidate, Measurement]]) -> list[Candidate]:
        """The measured programs, those of the least time or expected cost first."""
        costs = [measurement.median_s for _, measurement in history]
        if self._estimate.power is not None and history:
            costs = self._estimate.means(space, [values_of(one) for one, _ in history]).tolist()
        order = sorted(range(len(history)), key=lambda number: costs[number])
        return [history[number][0] for number in order]

    def _cached(self, source: Source) -> Source:
        """A source whose programs are kept, by the learned estimate if it takes one."""
        own = source.proposer
        if isinstance(own, EstimatingProposer):
            own = own.by(self._cost_s)
        return replace(source, proposer=CachingProposer(own))

    def _cost_s(self, space: DesignSpace, program: Decisions) -> float:
        return self._estimate.cost_s(space, program)
