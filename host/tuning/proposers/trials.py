"""Trials of the proposers on a board, which of them won, and whose first programs are faster."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from host.model import Candidate
from host.records.choice import CLOSE
from host.statistics import Estimate, mean_of

# A first proposal that does not run counts as so many times slower, and none counts as more.
_SLOWEST = 4.0


@dataclass(frozen=True)
class Trial:
    """One measured or failed program of the board.

    Attributes:
        candidate: the program, with its task's hash and its proposer.
        seconds: median of one call; infinite if the program did not build or run.
        group: key of its batch; "" if that is unknown.
    """

    candidate: Candidate
    seconds: float
    group: str = ""

    @property
    def task(self) -> str:
        """The workload hash of the task."""
        return self.candidate.workload_hash


@dataclass(frozen=True)
class JudgedTrial:
    """Whether a trial won.

    Attributes:
        trial: the measured or failed program.
        won: whether it improved its task's best time or came within 2% of it.
    """

    trial: Trial
    won: bool


def judge_trials(trials: Sequence[Trial]) -> list[JudgedTrial]:
    """Verdicts in the order of the trials.

    The programs of one task in one batch compete with each other and with all earlier ones, so the order
    within a batch gives no advantage. The first programs of a task are not judged if one proposer made all of
    them, because there is nothing to compare them with. A program that is measured again is judged once.
    """
    best: dict[str, float] = {}
    judged = []
    for _, group in itertools.groupby(_numbered(_first_trials(trials)), key=lambda pair: pair[0]):
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


def _first_trials(trials: Iterable[Trial]) -> Iterator[Trial]:
    """The first trial of each program."""
    known: set[object] = set()
    for trial in trials:
        program = (trial.task, trial.candidate.rule, trial.candidate.decisions)
        if program not in known:
            known.add(program)
            yield trial


def _numbered(trials: Iterable[Trial]) -> list[tuple[str, Trial]]:
    """Trials with their groups; a trial of an unknown batch has a group of its own."""
    return [(trial.group or f"alone {index}", trial) for index, trial in enumerate(trials)]


def first_program_speed(trials: Sequence[Trial], name: str, other: str) -> Estimate:
    """How many times as fast the first programs of one proposer are as those of another on a board.

    Args:
        trials: of the board, the first one first.
        name: of the proposer.
        other: of the one that it is compared with.

    Returns:
        The geometric mean over the tasks for which both have made a program; 1 without bounds if there is
        none.
    """
    first: dict[tuple[str, str], float] = {}
    for trial in trials:
        first.setdefault((trial.candidate.proposer, trial.task), trial.seconds)
    speeds = [
        _ratio(first[other, task], seconds)
        for (proposer, task), seconds in first.items()
        if proposer == name and (other, task) in first
    ]
    return mean_of(speeds) if speeds else Estimate(1.0, n=0)


def _ratio(seconds: float, other: float) -> float:
    """The ratio of two times, limited to a factor of four in both directions; 1 if neither program ran."""
    if math.isinf(seconds) and math.isinf(other):
        return 1.0
    if math.isinf(other):
        return 1.0 / _SLOWEST
    return min(_SLOWEST, max(1.0 / _SLOWEST, seconds / other))
