"""What the measured records of a board say of the proposers: who has been winning, and how often."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from host.model import Candidate
from host.records.record import CLOSE

# A first proposal that does not run counts as so many times slower, and none counts as more.
_SLOWEST = 4.0
# Tasks that two proposers must have made a first program for before one is preferred unmeasured.
_MIN_TASKS = 3


@dataclass(frozen=True)
class Trial:
    """One measured or failed program of the board.

    Attributes:
        candidate: the program, with its task's hash and its proposer.
        seconds: median of one call; infinite where it did not build or run.
        group: names the batch that it was measured in; "" where that is not known.
    """

    candidate: Candidate
    seconds: float
    group: str = ""

    @property
    def task(self) -> str:
        """Workload hash."""
        return self.candidate.workload_hash


@dataclass(frozen=True)
class JudgedTrial:
    """Whether a trial won.

    Attributes:
        trial: what was measured.
        won: it improved on its task's best, or came within 2% of it.
    """

    trial: Trial
    won: bool


def judge_trials(trials: Sequence[Trial]) -> list[JudgedTrial]:
    """Verdicts in the order of the trials.

    The programs of one task in one batch compete with each other and with everything before them, so that
    nobody wins by being measured first. The first programs of a task are not judged where one proposer made
    them all: there is nothing to compare with.
    """
    best: dict[str, float] = {}
    judged = []
    for _, group in itertools.groupby(_numbered(trials), key=lambda pair: pair[0]):
        batch = [trial for _, trial in group]
        for trial in batch:
            rivals = [other for other in batch if other.task == trial.task]
            before = best.get(trial.task, math.inf)
            alone = len({other.candidate.proposer for other in rivals}) == 1
            if alone and math.isinf(before):
                continue
            reached = min(before, *(other.seconds for other in rivals))
            judged.append(
                JudgedTrial(trial, math.isfinite(trial.seconds) and trial.seconds <= CLOSE * reached)
            )
        for trial in batch:
            best[trial.task] = min(best.get(trial.task, math.inf), trial.seconds)
    return judged


def _numbered(trials: Iterable[Trial]) -> list[tuple[str, Trial]]:
    """Trials with the group they compete in; those of no known batch each on its own."""
    return [(trial.group or f"alone {index}", trial) for index, trial in enumerate(trials)]


def best_first_proposer(trials: Sequence[Trial], names: Sequence[str]) -> str:
    """The proposer whose first program of a task has been the best on this board, unmeasured.

    Over the tasks that both have made a program for: the geometric mean of how many times slower the first
    one of each was than the faster of the two. The first name stays unless another is better by more than 2%
    over at least three tasks.
    """
    first: dict[tuple[str, str], float] = {}
    for trial in trials:
        first.setdefault((trial.candidate.proposer, trial.task), trial.seconds)
    chosen = names[0]
    for name in names[1:]:
        ratios = [
            _ratio(seconds, first[chosen, task])
            for (proposer, task), seconds in first.items()
            if proposer == name and (chosen, task) in first
        ]
        if len(ratios) >= _MIN_TASKS and math.fsum(map(math.log, ratios)) / len(ratios) < -math.log(CLOSE):
            chosen = name
    return chosen


def _ratio(seconds: float, other: float) -> float:
    """Seconds over the other's, at most a factor of four either way; 1 where neither ran."""
    if math.isinf(seconds) and math.isinf(other):
        return 1.0
    if math.isinf(other):
        return 1.0 / _SLOWEST
    return min(_SLOWEST, max(1.0 / _SLOWEST, seconds / other))
