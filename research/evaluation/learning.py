"""The language model with fine-tuning: measure programs in rounds, and train between the rounds.

A round covers all tasks of a network before each training, as in `sdk tune`: measurements of one task help
the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

from host.errors import TlmError
from host.model import Candidate
from host.records import Record, RecordStore
from host.records.store import profile_data
from host.schedules.design import DesignSpace
from host.tlm.proposer import Tlm
from research.evaluation.proposals import Proposed, Selection, Subject

# Measurements of a task between two trainings, at most.
_ROUND = 8
# Fewer measured programs teach nothing: some have to be withheld.
_MIN_PROGRAMS = 24


@dataclass(frozen=True)
class LearnOptions:
    """Options of the model that learns.

    Attributes:
        checkpoint: of the initial model.
        folder: of the records and checkpoints of this evaluation.
        steps: batches of each training; 0 trains nothing and only measures.
        seed: of proposals and batches.
    """

    checkpoint: Path
    folder: Path
    steps: int = 100
    seed: int = 0


class Learner:
    """The model and its measurements of the tasks of one network.

    Args:
        subjects: tasks by workload hash.
        options: of the model.
        note: called with a line for every training.
    """

    def __init__(
        self, subjects: Mapping[str, Subject], options: LearnOptions, note: Callable[[str], None]
    ) -> None:
        self._subjects = subjects
        self._options = options
        self._note = note
        self._present = options.checkpoint
        self._proposer = Tlm(options.checkpoint, estimate=DesignSpace.estimate_s)
        self._candidates: dict[str, list[Candidate]] = {key: [] for key in subjects}
        self._propose_s = dict.fromkeys(subjects, 0.0)
        self._training_s = 0.0
        self._learned = 0
        options.folder.mkdir(parents=True, exist_ok=True)
        self._store = RecordStore(options.folder / "records.sqlite")

    def __enter__(self) -> Learner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._store.close()

    def run(self, budgets: Sequence[int]) -> dict[tuple[str, int], Selection]:
        """The selections after each number of measurements, by task and budget.

        The seconds of a selection include the task's share of all trainings so far.

        Raises:
            BuildError: nothing of a task compiles.
        """
        found: dict[tuple[str, int], Selection] = {}
        for target in rounds(budgets):
            self._learn()
            for key in self._subjects:
                self._measure(key, target)
            if target in budgets:
                found.update({(key, target): self._selection(key, target) for key in self._subjects})
        return found

    def _measure(self, key: str, target: int) -> None:
        """Measure programs of the current model until a task has so many measurements."""
        subject, earlier = self._subjects[key], self._candidates[key]
        if len(earlier) >= target:
            return
        history = [
            (candidate, trial.measurement)
            for candidate, trial in ((one, subject.measured(one)) for one in earlier)
            if trial.measurement is not None and trial.measurement.trusted
        ]
        proposed = subject.propose(
            self._proposer, target - len(earlier), history, self._options.seed + len(earlier)
        )
        self._propose_s[key] += proposed.seconds
        known = {candidate.decisions for candidate in earlier}
        fresh = [candidate for candidate in proposed.candidates if candidate.decisions not in known]
        earlier.extend(fresh)
        data = profile_data(subject.bench.profile)
        trials = ((candidate, subject.measured(candidate).measurement) for candidate in fresh)
        self._store.append([Record(one, data, measured) for one, measured in trials if measured is not None])

    def _selection(self, key: str, budget: int) -> Selection:
        subject = self._subjects[key]
        if not budget:
            return subject.select(self._proposer, 0, self._options.seed)
        proposed = Proposed(tuple(self._candidates[key]), self._propose_s[key])
        chosen = subject.chosen(proposed, measured=True)
        return replace(chosen, seconds=chosen.seconds + self._training_s / len(self._subjects))

    def _learn(self) -> None:
        """Train on all measurements so far; the new model proposes from then on."""
        from host.tlm.language.vocabulary import Vocabulary
        from host.tlm.training.finetune import FinetuneOptions, examples_of, finetune

        spaces = {key: one.space for key, one in self._subjects.items() if one.space is not None}
        if not self._options.steps:
            return
        records = list(self._store)
        if len(records) < _MIN_PROGRAMS or len(records) == self._learned:
            return
        self._learned = len(records)
        begin = time.perf_counter()
        options = FinetuneOptions(
            start=self._options.checkpoint,
            out=self._options.folder / "models",
            present=self._present,
            steps=self._options.steps,
            seed=self._options.seed,
        )
        try:
            result = finetune(options, examples_of(records, spaces, Vocabulary()), lambda _: None)
        except TlmError as error:
            self._note(f"training on {len(records)} programs failed: {error}")
            return
        finally:
            self._training_s += time.perf_counter() - begin
        verdict = "in use" if result.accepted else "not better"
        self._note(
            f"fine-tuned on {len(records)} programs, {verdict}: "
            f"error {result.before:.3f} to {result.after:.3f}"
        )
        if result.accepted:
            self._present = result.checkpoint
            self._proposer = Tlm(result.checkpoint, estimate=DesignSpace.estimate_s)


def rounds(budgets: Sequence[int]) -> list[int]:
    """Numbers of measurements after which the model is trained: every budget, and numbers between."""
    found: list[int] = []
    before = 0
    for budget in sorted(set(budgets)):
        parts = max(1, -(-(budget - before) // _ROUND))
        found += [before + (budget - before) * part // parts for part in range(1, parts + 1)]
        before = budget
    return found
