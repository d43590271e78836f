"""Preparation of a batch: select tasks, propose programs, build them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from host.errors import BuildError, ScheduleError, TlmError, one_line
from host.learned_estimate.observation import Observation, observations_of, values_of
from host.model import Candidate, DeviceProfile
from host.records import MODEL
from host.schedules.proposer import Proposer
from host.tuning.background import lower_priority
from host.tuning.budget import MIN_GAIN
from host.tuning.history import TuningHistory
from host.tuning.options import TuneOptions
from host.tuning.proposers.bandit import BanditProposer
from host.tuning.proposers.bayesian import LearningProposer, OpenTask
from host.tuning.proposers.caching import CachingProposer
from host.tuning.runners.runner import Program
from host.tuning.scheduler import TaskState, allocate_trials, expected_saving
from host.tuning.tasks import TuningTask

if TYPE_CHECKING:
    from host.build import KernelObject

# The share of the time for measuring after which programs are measured again.
_CONFIRM_FROM = 0.75

Build: TypeAlias = "Callable[[TuningTask, Candidate], Path | KernelObject]"


@dataclass(frozen=True, eq=False)
class Batch:
    """Programs to be measured together.

    Attributes:
        number: of the batch in its tuning.
        programs: in the order in which they are measured; none ends the tuning.
        ended: why there are none: "trials", "time", "gain" or "programs".
    """

    number: int
    programs: tuple[Program, ...]
    ended: str = ""


class BatchBuilder:
    """Selects tasks, proposes programs and builds them, from the given records and its own earlier proposals.

    Args:
        tasks: of the model.
        profile: of the device.
        proposers: each of another name.
        build: builds a program.
        options: of the tuning.
        note: receives a line when a proposer fails.
    """

    def __init__(
        self,
        tasks: Sequence[TuningTask],
        profile: DeviceProfile,
        proposers: Sequence[Proposer],
        build: Build,
        options: TuneOptions,
        note: Callable[[str], None],
    ) -> None:
        self._tasks = {task.key: task for task in tasks}
        self._profile = profile
        # What a learning proposer proposes changes with every measurement.
        self._proposers: dict[str, Proposer] = {
            one.name: one if isinstance(one, LearningProposer) else CachingProposer(one) for one in proposers
        }
        self._bases = dict(options.bases)
        self._build_one = build
        self._options = options
        self._note = note
        # Everything proposed in this run, by batch: records of the last ones are not there yet.
        self._proposed: dict[int, list[Candidate]] = {}
        # Those of them that are measured again.
        self._confirming: set[Candidate] = set()
        self._sentences: dict[str, tuple[str, ...] | None] = {}
        self._stopping = threading.Event()

    def replace_proposer(self, proposer: Proposer, digest: str) -> None:
        """Replace the proposer of the same name, or the source of that name of those that learn."""
        learners = [one for one in self._proposers.values() if isinstance(one, LearningProposer)]
        if not any(one.replace_source(proposer) for one in learners):
            self._proposers[proposer.name] = CachingProposer(proposer)
        self._bases[proposer.name] = digest

    def stop(self) -> None:
        """Stop soon; the batch under preparation is no longer needed."""
        self._stopping.set()

    @property
    def _too_late(self) -> bool:
        """Whether what is not built by now is of no use."""
        return self._stopping.is_set() or self._options.deadline.passed

    def next_batch(self, number: int, history: TuningHistory, spent: float) -> Batch:
        """The next batch.

        Args:
            number: of it.
            history: the records at the time of the call.
            spent: share of the time for measuring that is spent; 0 without a limit.
        """
        under_way = self._under_way(history)
        budget = self._options.budget
        references = self._references(history)
        free = {candidate for _, candidate in references}
        counted = history.spent + sum(one not in free for one in under_way)
        left = budget.trials - counted if budget.trials else sys.maxsize
        if left <= 0:
            return Batch(number, (), "trials")
        if spent >= 1.0:
            return Batch(number, (), "time")
        again = self._to_confirm(history)
        if again and (left <= len(again) or spent >= _CONFIRM_FROM):
            return self._confirmation(number, again[:left], "programs")
        begins = not self._proposed and not history.own
        size = min(budget.first_batch_size if begins else budget.batch_size, left - len(again))
        references = [pair for pair in references if pair[1] not in under_way]
        under_way += [candidate for _, candidate in references]
        chosen, saving = self._propose(number, history, under_way, size)
        if budget.seconds and saving < MIN_GAIN:
            return self._confirmation(number, again, "gain")
        return (
            self._batch(number, [*references, *chosen], "programs")
            if chosen
            else self._confirmation(number, again, "programs")
        )

    def _references(self, history: TuningHistory) -> list[tuple[TuningTask, Candidate]]:
        """References of tasks that nothing is known of, inside of a model: every job times them anyway."""
        if self._options.origin.measured_in != MODEL:
            return []
        return [
            (task, task.reference)
            for task in self._tasks.values()
            if task.reference is not None and not history.is_known(task)
        ]

    def _confirmation(self, number: int, chosen: Sequence[tuple[TuningTask, Candidate]], ended: str) -> Batch:
        """The batch of programs that are measured again."""
        self._confirming.update(candidate for _, candidate in chosen)
        return self._batch(number, chosen, ended)

    def _batch(self, number: int, chosen: Sequence[tuple[TuningTask, Candidate]], ended: str) -> Batch:
        """The batch of these programs; `ended` is the reason where there are none."""
        self._proposed[number] = [candidate for _, candidate in chosen]
        programs = self._built(chosen)
        if not programs and self._options.deadline.passed:
            return Batch(number, (), "time")
        return Batch(number, programs, "" if programs else ended)

    def _under_way(self, history: TuningHistory) -> list[Candidate]:
        """Programs of this run's batches that have no record yet."""
        known = {
            (one.origin.batch, one.candidate.workload_hash, one.candidate.decisions) for one in history.own
        }
        return [
            one
            for number, batch in self._proposed.items()
            for one in batch
            if (number, one.workload_hash, one.decisions) not in known
        ]

    def _to_confirm(self, history: TuningHistory) -> list[tuple[TuningTask, Candidate]]:
        """Programs that replace a reference and were measured once, those of the longest tasks first."""
        if not self._options.confirm:
            return []
        found = []
        for task in self._tasks.values():
            candidate = history.unconfirmed(task)
            if candidate is not None and candidate not in self._confirming:
                found.append((task, candidate))
        return sorted(found, key=lambda pair: (-history.task_state(pair[0]).seconds, pair[0].key))

    def _states(self, history: TuningHistory, under_way: Sequence[Candidate]) -> list[TaskState]:
        return [
            history.task_state(task, sum(one.workload_hash == key for one in under_way))
            for key, task in self._tasks.items()
        ]

    def _propose(
        self, number: int, history: TuningHistory, under_way: Sequence[Candidate], size: int
    ) -> tuple[list[tuple[TuningTask, Candidate]], float]:
        """Programs for so many trials, and the share of the model's time that they are expected to save.

        Fewer only if no proposer has any left. Inside of a model, where all references are known, one
        proposer that learns divides the trials among the tasks too; else the scheduler does.
        """
        for proposer in self._proposers.values():
            if isinstance(proposer, LearningProposer):
                proposer.learn(self._observations(history))
        states = self._states(history, under_way)
        seed = self._options.seed + number
        first, *others = self._proposers.values()
        inside = self._options.origin.measured_in == MODEL
        if inside and not others and isinstance(first, LearningProposer):
            tasks = self._open(history, states, under_way)
            promises = first.propose_across(tasks, self._profile, size, seed)
            total = sum(one.seconds for one in states if not one.abandoned)
            saved = sum(one.saving_s for one in promises)
            return [
                (self._tasks[one.task], one.candidate) for one in promises
            ], saved / total if total else 0.0
        share = expected_saving(states, allocate_trials(states, size))
        return self._proposed_by_several(history, states, size, seed), share

    def _open(
        self, history: TuningHistory, states: Sequence[TaskState], under_way: Sequence[Candidate]
    ) -> list[OpenTask]:
        """The tasks that are not abandoned."""
        every = [one for batch in self._proposed.values() for one in batch]
        found = []
        for task in (self._tasks[one.key] for one in states if not one.abandoned):
            now = tuple(one for one in under_way if one.workload_hash == task.key)
            # Also what a throttled device measured.
            tried = [one for one in every if one.workload_hash == task.key and one not in now]
            gone = (*tried, *history.failed_programs(task))
            known = history.measured_programs(task)
            settled = {one.decisions for one, _ in known}
            timed = [one.candidate for one in history.timed_records(task)]
            left = tuple(one for one in timed if one.decisions not in settled)
            found.append(OpenTask(task, known, now, gone, left))
        return found

    def _proposed_by_several(
        self, history: TuningHistory, states: Sequence[TaskState], size: int, seed: int
    ) -> list[tuple[TuningTask, Candidate]]:
        """Programs of all proposers for so many trials, see `BanditProposer`."""
        bandit = BanditProposer(
            list(self._proposers.values()), self._options.seed, history.trials, self._note
        )
        every = [one for batch in self._proposed.values() for one in batch]
        chosen: list[tuple[TuningTask, Candidate]] = []
        open_states = list(states)
        while len(chosen) < size and open_states and not self._too_late:
            exhausted = set()
            for key, count in allocate_trials(open_states, size - len(chosen)).items():
                task = self._tasks[key]
                taken = [one for one in (*every, *(c for _, c in chosen)) if one.workload_hash == key]
                taken += history.failed_programs(task)
                known = history.measured_programs(task)
                inside = self._options.origin.measured_in == MODEL
                found = [] if known or taken or inside or task.reference is None else [task.reference]
                taken += [] if task.reference is None else [task.reference]
                found += bandit.propose(
                    task.space, self._profile, known, count - len(found), seed, [*taken, *found]
                )
                chosen += [(task, one) for one in found]
                if len(found) < count:
                    exhausted.add(key)
            open_states = [one for one in open_states if one.key not in exhausted]
            if not exhausted:
                break
        return chosen

    def _observations(self, history: TuningHistory) -> list[Observation]:
        """The measured programs of the board; those of the present tasks last, where they count most."""
        others = [one for one in observations_of(history.records) if one.program.task not in self._tasks]
        return others + [
            Observation.of(
                task.space,
                values_of(one.candidate),
                one.measurement.median_s,
                watts=history.watts.get(id(one)),
            )
            for task in self._tasks.values()
            for one in history.timed_records(task)
        ]

    def _built(self, chosen: Sequence[tuple[TuningTask, Candidate]]) -> tuple[Program, ...]:
        workers = max(1, self._options.workers)
        if workers == 1:
            return tuple(self._program(task, one) for task, one in chosen if not self._too_late)
        prepare = lower_priority if self._options.low_priority else None
        with ThreadPoolExecutor(workers, "building", prepare) as pool:
            built = pool.map(lambda pair: None if self._too_late else self._program(*pair), chosen)
            return tuple(program for program in built if program is not None)

    def _program(self, task: TuningTask, candidate: Candidate) -> Program:
        built, failure = None, ""
        try:
            built = self._build_one(task, candidate)
        except (ScheduleError, BuildError) as error:
            failure = one_line(error)
        base = self._bases.get(candidate.proposer)
        return Program(task, candidate, built, failure, self._sentence(task), base)

    def _sentence(self, task: TuningTask) -> tuple[str, ...] | None:
        """The task as a sentence of the tensor language, so that training needs only records."""
        if task.key not in self._sentences:
            from host.tlm.language.description import describe_board, describe_task
            from host.tlm.language.sentence import encode_prompt

            space = task.space
            try:
                board = describe_board(space.hardware, space.threads)
                self._sentences[task.key] = tuple(encode_prompt(board, describe_task(space)))
            except TlmError as error:
                self._note(f"{task.name} is not used for training: {error}")
                self._sentences[task.key] = None
        return self._sentences[task.key]
