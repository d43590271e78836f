"""The measured records of one board, from which a run of the loop continues."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from host.model import Candidate, DeviceProfile, Measurement
from host.records import MODEL, Record, RecordStore
from host.records.record import fastest_program, profile_data, unconfirmed_program
from host.schedules.families import rule_versions
from host.tuning.proposers.trials import Trial
from host.tuning.scheduler import TaskState
from host.tuning.tasks import TuningTask


def tuning_key(model: str, seed: int, measured_in: str | None = None, method: str = "auto") -> str:
    """Names a tuning: all runs for one model with one seed and method share a budget on a board.

    Args:
        model: digest of the model file and its shapes.
        seed: of every random choice.
        measured_in: `host.records.MODEL` for kernels that are measured inside of the model, None for kernels
            alone.
        method: who proposes alone; "auto" for all together.
    """
    # The 4 has been in every key so far. Which records count is decided by the versions of their rules.
    parts = (f"{model[:16]}/{seed}/4", measured_in or "", "" if method == "auto" else method)
    return "/".join(part for part in parts if part)


def trial_of(record: Record) -> Trial:
    """A record as a trial."""
    seconds = record.median_s
    origin = record.origin
    group = "" if origin.tuning is None or origin.batch is None else f"{origin.tuning}/{origin.batch}"
    return Trial(record.candidate, math.inf if seconds is None else seconds, group)


def is_free(record: Record, earlier: Iterable[Record]) -> bool:
    """Whether a record counts against no budget: the first program of a task that ran inside of a model.

    Args:
        record: of the task.
        earlier: records of the same task before it.
    """
    inside = record.origin.measured_in == MODEL and not record.failure
    return inside and all(one.failure for one in earlier)


@dataclass(frozen=True, eq=False)
class TuningHistory:
    """Records of one device profile in the present versions of the rules, oldest first; never changed.

    Attributes:
        records: of every tuning.
        tuning: key of the current tuning.
        trials: the records as trials, in the same order.
        own: records of the current tuning, earlier runs included.
        spent: how many of them count against its budget. Inside of a model the first program of a task does
            not: every job measures it anyway, to compare the others with it.
    """

    records: tuple[Record, ...]
    tuning: str
    trials: tuple[Trial, ...]
    own: tuple[Record, ...]
    spent: int
    _by_task: Mapping[str, tuple[tuple[Record, float], ...]]

    @classmethod
    def read(
        cls, store: RecordStore, profile: DeviceProfile, tuning: str, measured_in: str | None = None
    ) -> TuningHistory:
        """The history of a board in a store.

        Args:
            store: of the records.
            profile: of the board.
            tuning: key of the current tuning.
            measured_in: `host.records.MODEL` for times inside of a model, None for times of kernels alone:
                they do not compare. Programs that failed are part of both.
        """
        nothing = cls((), tuning, (), (), 0, {})
        records = store.select(profile_data(profile), rule_versions(), failed=True)
        return nothing.extended(
            tuple(one for one in records if one.failure or one.origin.measured_in == measured_in)
        )

    def extended(self, records: Sequence[Record]) -> TuningHistory:
        """With further records appended; those of a throttled device count against the budget only."""
        counted = [one for one in records if one.failure or one.measurement.trusted]
        trials = tuple(trial_of(one) for one in counted)
        own = tuple(one for one in records if one.origin.tuning == self.tuning)
        spent = self.spent + len(own)
        by_task = dict(self._by_task)
        for record, trial in zip(counted, trials, strict=True):
            known = by_task.get(trial.task, ())
            own_one = record.origin.tuning == self.tuning
            spent -= int(own_one and is_free(record, [one for one, _ in known]))
            by_task[trial.task] = (*known, (record, trial.seconds))
        return TuningHistory(
            (*self.records, *counted), self.tuning, (*self.trials, *trials), (*self.own, *own), spent, by_task
        )

    @property
    def elapsed_s(self) -> float:
        """Seconds that the earlier runs of the tuning took up to their last record."""
        return max((one.origin.elapsed_s or 0.0 for one in self.own), default=0.0)

    @property
    def next_batch(self) -> int:
        """Number of the next batch of the tuning."""
        return max((one.origin.batch + 1 for one in self.own if one.origin.batch is not None), default=0)

    def task_records(self, task: TuningTask) -> list[tuple[Record, float]]:
        """Records of one task with programs of its design space, and seconds; infinite if they failed."""
        rule = task.space.rule.name
        return [pair for pair in self._by_task.get(task.key, ()) if pair[0].candidate.rule == rule]

    def measured_programs(self, task: TuningTask) -> list[tuple[Candidate, Measurement]]:
        """Measured programs of a task."""
        return [
            (one.candidate, one.measurement) for one, time in self.task_records(task) if math.isfinite(time)
        ]

    def failed_programs(self, task: TuningTask) -> list[Candidate]:
        """Programs of a task that do not build or run."""
        return [one.candidate for one, time in self.task_records(task) if math.isinf(time)]

    def task_state(self, task: TuningTask, pending: int = 0) -> TaskState:
        """A task as the scheduler sees it."""
        times = tuple(time for _, time in self.task_records(task))
        return TaskState(task.key, float(task.weight), times, pending, task.estimate_s)

    def best(self, task: TuningTask) -> tuple[Record, float] | None:
        """The program to take, with seconds of one call: see `host.records.record.fastest_program`."""
        return fastest_program(record for record, _ in self.task_records(task))

    def unconfirmed(self, task: TuningTask) -> Candidate | None:
        """The fastest program if it was measured once and would replace another one, else None.

        None too where the task has no reference.
        """
        record = unconfirmed_program(one for one, _ in self.task_records(task))
        return None if record is None or task.reference is None else record.candidate


def model_seconds(tasks: Sequence[TuningTask], best_s: Mapping[str, float]) -> float:
    """Seconds of one run of the model in these tasks.

    Args:
        tasks: of the model.
        best_s: seconds of one call by workload hash; a task that is missing counts as estimated.
    """
    return math.fsum(task.weight * best_s.get(task.key, task.estimate_s) for task in tasks)
