"""The result of a tuning: wins and trials of each proposer, and the model's time against trials."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from host.model import Candidate
from host.records import Record
from host.records.choice import best_program
from host.tuning.history import TuningHistory, is_free, model_seconds, trial_of
from host.tuning.learning.trainer import TrainingResult
from host.tuning.proposers.trials import judge_trials
from host.tuning.tasks import TuningTask


@dataclass(frozen=True)
class TunedTask:
    """One task after a tuning.

    Attributes:
        name: of the kernel.
        workload_hash: the task.
        weight: calls in one run of the model.
        trials: of this tuning.
        failed: of them that did not build or run.
        first_s: seconds of the first program measured on the board; None where none runs.
        best: the program to take; None where none runs.
        best_s: its seconds of one call.
        earlier: whether the best program was measured before this run.
    """

    name: str
    workload_hash: str
    weight: int
    trials: int
    failed: int
    first_s: float | None
    best: Candidate | None
    best_s: float | None
    earlier: bool


@dataclass(frozen=True)
class ProposerFigures:
    """One proposer in a tuning.

    Attributes:
        name: its name.
        tasks_won: number of tasks with a best program of this proposer.
        time_won: share of the model's time in these tasks.
        trials: number of its programs that were tried.
        wins: number of those that improved their task's best time or came within 2% of it.
        failed: number of those that did not build or run.
    """

    name: str
    tasks_won: int
    time_won: float
    trials: int
    wins: int
    failed: int


@dataclass(frozen=True)
class TuneResult:
    """The result of a tuning, including its earlier runs.

    Attributes:
        tasks: those that have decisions.
        skipped: why the others have none, by kernel name.
        proposers: the one with most tasks won first.
        trials: of the tuning in all.
        measured_now: programs that were measured in this run.
        curve: number of trials and estimated seconds of one run of the model after them.
        shares: trials by proposer, batch by batch.
        trainings: of this run.
        stopped: "trials", "time", "gain" or "programs": which limit ended it.
        seconds: of this run.
        free_now: those of `measured_now` that are no trials: the first program of each kernel of a model.
    """

    tasks: tuple[TunedTask, ...]
    skipped: Mapping[str, str]
    proposers: tuple[ProposerFigures, ...]
    trials: int
    measured_now: int
    curve: tuple[tuple[int, float], ...]
    shares: tuple[Mapping[str, int], ...]
    trainings: tuple[TrainingResult, ...] = ()
    stopped: str = ""
    seconds: float = 0.0
    free_now: int = 0

    @property
    def trials_now(self) -> int:
        """Trials of this run."""
        return self.measured_now - self.free_now

    @property
    def model_s(self) -> float:
        """Estimated seconds of one run of the model in its tuned tasks."""
        return self.curve[-1][1]

    @property
    def first_model_s(self) -> float:
        """The same with the first program measured of each task."""
        return self.curve[0][1]


def summary(
    tasks: Sequence[TuningTask], history: TuningHistory, measured_now: int, spent_now: int | None = None
) -> TuneResult:
    """The result of a tuning, computed from its records.

    Args:
        tasks: of the model.
        history: its records.
        measured_now: how many of them, the last ones, are of this run.
        spent_now: how many of these count against a budget; None for all.
    """
    earlier = len(history.records) - measured_now
    before = {id(one) for one in history.records[:earlier]}
    tuned = tuple(_tuned(task, history, before) for task in tasks)
    return TuneResult(
        tasks=tuned,
        skipped={},
        proposers=_proposers(tuned, history),
        trials=history.spent,
        measured_now=measured_now,
        curve=curve(tasks, history),
        shares=_shares(history),
        free_now=0 if spent_now is None else measured_now - spent_now,
    )


def _tuned(task: TuningTask, history: TuningHistory, before: set[int]) -> TunedTask:
    known = history.task_records(task)
    own = [time for one, time in known if one.origin.tuning == history.tuning]
    best = history.best(task)
    return TunedTask(
        name=task.name,
        workload_hash=task.key,
        weight=task.weight,
        trials=len(own),
        failed=sum(map(math.isinf, own)),
        first_s=_first(history, task),
        best=None if best is None else best[0].candidate,
        best_s=None if best is None else best[1],
        earlier=best is not None and id(best[0]) in before,
    )


def _first(history: TuningHistory, task: TuningTask) -> float | None:
    return next((time for _, time in history.task_records(task) if math.isfinite(time)), None)


def _proposers(tuned: Sequence[TunedTask], history: TuningHistory) -> tuple[ProposerFigures, ...]:
    won: dict[str, list[float]] = {}
    for task in tuned:
        if task.best is not None and task.best_s is not None:
            won.setdefault(task.best.proposer, []).append(task.weight * task.best_s)
    own = [trial_of(one) for one in history.own]
    names = Counter(trial.candidate.proposer for trial in own)
    groups = {trial.group for trial in own}
    wins = Counter(
        verdict.trial.candidate.proposer
        for verdict in judge_trials(history.trials)
        if verdict.won and verdict.trial.group in groups
    )
    total = math.fsum(map(math.fsum, won.values()))
    figures = [
        ProposerFigures(
            name=name,
            tasks_won=len(won.get(name, ())),
            time_won=math.fsum(won.get(name, ())) / total if total else 0.0,
            trials=names[name],
            wins=wins[name],
            failed=sum(math.isinf(one.seconds) for one in own if one.candidate.proposer == name),
        )
        for name in {*names, *won}
    ]
    return tuple(sorted(figures, key=lambda one: (-one.time_won, -one.trials, one.name)))


def curve(tasks: Sequence[TuningTask], history: TuningHistory) -> tuple[tuple[int, float], ...]:
    """Estimated seconds of one run of the model against trials; it begins with each task's first program.

    A task counts with the program to take so far, and before its first measurement with the first one: a step
    down is therefore always a better program, never the first measurement of a task. A step up is a program
    that took longer when it was measured again, or one that takes less energy where that is chosen by.
    """
    known = {task.key: task for task in tasks}
    firsts = {task.key: _first(history, task) for task in tasks}
    best = {key: first for key, first in firsts.items() if first is not None}
    seen: dict[str, list[Record]] = {}
    points: list[tuple[int, float]] = []
    for record, trial in zip(history.records, history.trials, strict=True):
        own = record.origin.tuning == history.tuning
        if own and not points:
            points.append((0, model_seconds(tasks, best)))
        task = known.get(trial.task)
        free = is_free(record, seen.get(trial.task, ()))
        if task is not None and trial.candidate.rule == task.space.rule.name and trial.task in best:
            seen.setdefault(trial.task, []).append(record)
            found = best_program(seen[trial.task], history.exponent)
            best[trial.task] = best[trial.task] if found is None else found[1]
        if own and not free:
            points.append((len(points), model_seconds(tasks, best)))
    return tuple(points) or ((0, model_seconds(tasks, best)),)


def _shares(history: TuningHistory) -> tuple[Mapping[str, int], ...]:
    batches: dict[int | None, Counter[str]] = {}
    for record in history.own:
        batches.setdefault(record.origin.batch, Counter())[record.candidate.proposer] += 1
    return tuple(dict(counts) for counts in batches.values())
