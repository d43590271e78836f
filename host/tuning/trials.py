"""What the measured records of a board say of the proposers: who has been winning, and how often."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from host.model import Candidate
from host.records.record import CLOSE

# What an earlier trial counts for beside the next one of the board. Discounted Thompson sampling: Raj and
# Kalyani, "Taming non-stationary bandits", arXiv 1707.09727: what learns does not stay what it was.
_DISCOUNT = 0.99
# Trials that a proposer's prior counts for; its mean is the win rate of all proposers of the board together,
# so that one which was not asked for long is not taken for better than those that won.
_PRIOR_TRIALS = 2.0
# A first proposal that does not run counts as so many times slower, and none counts as more.
_SLOWEST = 4.0
# Tasks that two proposers must have made a first program for before one is preferred unmeasured.
_ENOUGH_TASKS = 3


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
class Verdict:
    """Whether a trial won.

    Attributes:
        trial: what was measured.
        won: it improved on its task's best, or came within 2% of it.
    """

    trial: Trial
    won: bool


def judged(trials: Sequence[Trial]) -> list[Verdict]:
    """Verdicts in the order of the trials.

    The programs of one task in one batch compete with each other and with everything before them, so that
    nobody wins by being measured first. The first programs of a task are not judged where one proposer made
    them all: there is nothing to compare with.
    """
    best: dict[str, float] = {}
    verdicts = []
    for _, group in itertools.groupby(_numbered(trials), key=lambda pair: pair[0]):
        batch = [trial for _, trial in group]
        for trial in batch:
            rivals = [other for other in batch if other.task == trial.task]
            before = best.get(trial.task, math.inf)
            alone = len({other.candidate.proposer for other in rivals}) == 1
            if alone and math.isinf(before):
                continue
            reached = min(before, *(other.seconds for other in rivals))
            verdicts.append(Verdict(trial, math.isfinite(trial.seconds) and trial.seconds <= CLOSE * reached))
        for trial in batch:
            best[trial.task] = min(best.get(trial.task, math.inf), trial.seconds)
    return verdicts


def _numbered(trials: Iterable[Trial]) -> list[tuple[str, Trial]]:
    """Trials with the group they compete in; those of no known batch each on its own."""
    return [(trial.group or f"alone {index}", trial) for index, trial in enumerate(trials)]


@dataclass(frozen=True)
class Odds:
    """A proposer's chance of winning as a beta distribution.

    Attributes:
        wins, losses: discounted, with the prior's.
        trials: of it that were judged, all of them.
    """

    wins: float
    losses: float
    trials: int

    @property
    def rate(self) -> float:
        """Expected chance."""
        return self.wins / (self.wins + self.losses)

    def draw(self, generator: random.Random) -> float:
        """A chance drawn from the distribution."""
        return generator.betavariate(self.wins, self.losses)


def odds_of(trials: Sequence[Trial], names: Iterable[str]) -> dict[str, Odds]:
    """The odds of each proposer after all trials of a board; the later a trial, the more it counts."""
    wins = dict.fromkeys(names, 0.0)
    losses = dict.fromkeys(wins, 0.0)
    counts = Counter[str]()
    worth = 1.0
    for verdict in reversed(judged(trials)):
        name = verdict.trial.candidate.proposer
        if name in wins:
            (wins if verdict.won else losses)[name] += worth
            counts[name] += 1
        worth *= _DISCOUNT
    # One win and one loss of nobody in particular: no rate is 0 or 1.
    pooled = (1.0 + sum(wins.values())) / (2.0 + sum(wins.values()) + sum(losses.values()))
    return {
        name: Odds(
            wins[name] + _PRIOR_TRIALS * pooled, losses[name] + _PRIOR_TRIALS * (1.0 - pooled), counts[name]
        )
        for name in wins
    }


def shares_of(odds: Mapping[str, Odds], seed: int = 0, draws: int = 400) -> dict[str, float]:
    """The share of the proposals that each proposer may expect, by drawing many times."""
    generator = random.Random(f"shares/{seed}")
    counts = dict.fromkeys(odds, 0)
    for _ in range(draws):
        counts[drawn(odds, generator)] += 1
    return {name: count / draws for name, count in counts.items()}


def drawn(odds: Mapping[str, Odds], generator: random.Random) -> str:
    """The proposer of one slot: whose drawn chance of winning is the largest."""
    chances = {name: one.draw(generator) for name, one in odds.items()}
    return max(chances, key=lambda name: chances[name])


def first_choice(trials: Sequence[Trial], names: Sequence[str]) -> str:
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
        if len(ratios) >= _ENOUGH_TASKS and math.fsum(map(math.log, ratios)) / len(ratios) < -math.log(CLOSE):
            chosen = name
    return chosen


def _ratio(seconds: float, other: float) -> float:
    """Seconds over the other's, at most a factor of four either way; 1 where neither ran."""
    if math.isinf(seconds) and math.isinf(other):
        return 1.0
    if math.isinf(other):
        return 1.0 / _SLOWEST
    return min(_SLOWEST, max(1.0 / _SLOWEST, seconds / other))
