"""The measured records of one board, from which a run of the loop continues."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from host.model import Candidate, DeviceProfile, Measurement
from host.records import MODEL, Record, RecordStore
from host.records.choice import best_program, has_watts, relative_watts, unconfirmed_program, watts_of
from host.records.record import profile_data
from host.schedules.families import rule_versions
from host.tuning.proposers.trials import Trial
from host.tuning.scheduler import TaskState
from host.tuning.tasks import TuningTask


def tuning_key(
    model: str,
    seed: int,
    measured_in: str | None = None,
    method: str = "auto",
    objective: str = "latency",
) -> str:
    """Names a tuning: all runs for one model with one seed, method and objective share a budget on a board.

    Args:
        model: digest of the model file and its shapes.
        seed: of every random choice.
        measured_in: `host.records.MODEL` for kernels that are measured inside of the model, None for kernels
            alone.
        method: who proposes alone; "auto" for all together.
        objective: that programs are chosen by (`host.options.objective`).
    """
    # The 4 has been in every key so far. Which records count is decided by the versions of their rules.
    parts = (
        f"{model[:16]}/{seed}/4",
        measured_in or "",
        "" if method == "auto" else method,
        "" if objective == "latency" else objective,
    )
    return "/".join(part for part in parts if part)


def trial_of(record: Record) -> Trial:
    """A record as a trial."""
    seconds = record.median_s
    origin = record.origin
    group = "" if origin.tuning is None or origin.batch is None else f"{origin.tuning}/{origin.batch}"
    return Trial(record.candidate, math.inf if seconds is None else seconds, group)


def trials_by_cost(records: Sequence[Record], trials: Sequence[Trial], exponent: float) -> Sequence[Trial]:
    """Trials whose seconds are those at the reference power.

    A program whose watts are not known has the most that any other of its task has (`host.records.choice`).

    Args:
        records: of a board, every task.
        trials: the same records as trials.
        exponent: of watts in the cost; 0 changes nothing.
    """
    if not exponent:
        return trials
    watts = relative_watts(records)
    most: dict[str, float] = {}
    for trial, power in zip(trials, watts, strict=True):
        if power is not None:
            most[trial.task] = max(power, most.get(trial.task, 0.0))
    return tuple(
        replace(one, seconds=one.seconds * (power or most.get(one.task, 1.0)) ** exponent)
        for one, power in zip(trials, watts, strict=True)
    )


def is_free(record: Record, earlier: Iterable[Record]) -> bool:
    """Whether a record counts against no budget: the first program of a task that ran inside of a model.

    Where its energy was measured, that is the first one of which this was so: times that a tuning for latency
    has taken leave the power of the reference program unknown.

    Args:
        record: of the task.
        earlier: records of the same task before it.
    """
    inside = record.origin.measured_in == MODEL and not record.failure
    return inside and not any(_precedes(one, record) for one in earlier if not one.failure)


def _precedes(one: Record, record: Record) -> bool:
    """Whether an earlier record says of the reference program what the later one does."""
    own = one.origin.tuning == record.origin.tuning
    return own or not has_watts(record) or has_watts(one)


@dataclass(frozen=True, eq=False)
class TuningHistory:
    """Records of one device profile in the present versions of the rules, oldest first; never changed.

    Attributes:
        records: of every tuning.
        tuning: key of the current tuning.
        timed: the records as trials, in the same order.
        own: records of the current tuning, earlier runs included.
        spent: how many of them count against its budget. Inside of a model the first program of a task does
            not: every job measures it anyway, to compare the others with it.
        exponent: of watts in the cost that programs are chosen by (`host.options.objective`).
    """

    records: tuple[Record, ...]
    tuning: str
    timed: tuple[Trial, ...]
    own: tuple[Record, ...]
    spent: int
    exponent: float
    _by_task: Mapping[str, tuple[tuple[Record, float], ...]]

    @classmethod
    def read(
        cls,
        store: RecordStore,
        profile: DeviceProfile,
        tuning: str,
        measured_in: str | None = None,
        exponent: float = 0.0,
    ) -> TuningHistory:
        """The history of a board in a store.

        Args:
            store: of the records.
            profile: of the board.
            tuning: key of the current tuning.
            measured_in: `host.records.MODEL` for times inside of a model, None for times of kernels alone:
                they do not compare. Programs that failed are part of both.
            exponent: of watts in the cost that programs are chosen by.
        """
        nothing = cls((), tuning, (), (), 0, exponent, {})
        records = store.select(profile_data(profile), rule_versions(), failed=True)
        return nothing.extended(
            tuple(one for one in records if one.failure or one.origin.measured_in == measured_in)
        )

    def extended(self, records: Sequence[Record]) -> TuningHistory:
        """With further records appended; those of a throttled device count against the budget only."""
        counted = [one for one in records if one.failure or one.measurement.trusted]
        timed = tuple(trial_of(one) for one in counted)
        own = tuple(one for one in records if one.origin.tuning == self.tuning)
        spent = self.spent + len(own)
        by_task = dict(self._by_task)
        for record, trial in zip(counted, timed, strict=True):
            known = by_task.get(trial.task, ())
            own_one = record.origin.tuning == self.tuning
            spent -= int(own_one and is_free(record, [one for one, _ in known]))
            by_task[trial.task] = (*known, (record, trial.seconds))
        return replace(
            self,
            records=(*self.records, *counted),
            timed=(*self.timed, *timed),
            own=(*self.own, *own),
            spent=spent,
            _by_task=by_task,
        )

    @cached_property
    def trials(self) -> Sequence[Trial]:
        """The records as trials, in the same order, with their seconds at the reference power."""
        return trials_by_cost(self.records, self.timed, self.exponent)

    @cached_property
    def watts(self) -> Mapping[int, float]:
        """Watts of the records of the board's last sensor, by `id` of the record."""
        watts = zip(self.records, watts_of(self.records), strict=True)
        return {id(one): power for one, power in watts if power is not None}

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

    def timed_records(self, task: TuningTask) -> list[Record]:
        """Records of one task with a time, whatever they were measured for."""
        return [one for one, time in self.task_records(task) if math.isfinite(time)]

    def measured_programs(self, task: TuningTask) -> list[tuple[Candidate, Measurement]]:
        """Measured programs of a task: those of which nothing more is to be measured.

        Where the energy of a task counts, what another tuning has only timed is not among them.
        """
        return [
            (one.candidate, one.measurement)
            for one in self.timed_records(task)
            if not (self.exponent and task.energy) or has_watts(one) or one.origin.tuning == self.tuning
        ]

    def is_known(self, task: TuningTask) -> bool:
        """Whether a program of a task was measured or failed."""
        return bool(self.measured_programs(task) or self.failed_programs(task))

    def failed_programs(self, task: TuningTask) -> list[Candidate]:
        """Programs of a task that do not build or run."""
        return [one.candidate for one, time in self.task_records(task) if math.isinf(time)]

    def task_state(self, task: TuningTask, pending: int = 0) -> TaskState:
        """A task as the scheduler sees it."""
        rule = task.space.rule.name
        times = tuple(one.seconds for one in self._trials_of(task.key) if one.candidate.rule == rule)
        return TaskState(task.key, float(task.weight), times, pending, task.estimate_s)

    def _trials_of(self, key: str) -> tuple[Trial, ...]:
        return self._trials_by_task.get(key, ())

    @cached_property
    def _trials_by_task(self) -> Mapping[str, tuple[Trial, ...]]:
        found: dict[str, list[Trial]] = {}
        for one in self.trials:
            found.setdefault(one.task, []).append(one)
        return {key: tuple(own) for key, own in found.items()}

    def best(self, task: TuningTask) -> tuple[Record, float] | None:
        """The program to take, with seconds of one call: see `host.records.choice.best_program`."""
        return best_program((record for record, _ in self.task_records(task)), self.exponent)

    def unconfirmed(self, task: TuningTask) -> Candidate | None:
        """The best program if it was measured once and would replace another one, else None.

        None too where the task has no reference.
        """
        record = unconfirmed_program((one for one, _ in self.task_records(task)), self.exponent)
        return None if record is None or task.reference is None else record.candidate


def model_seconds(tasks: Sequence[TuningTask], best_s: Mapping[str, float]) -> float:
    """Seconds of one run of the model in these tasks.

    Args:
        tasks: of the model.
        best_s: seconds of one call by workload hash; a task that is missing counts as estimated.
    """
    return math.fsum(task.weight * best_s.get(task.key, task.estimate_s) for task in tasks)
