"""The order in which programs are measured: by probability and estimate, with variety among later programs.

A program's score is log T - w log p, where T is its estimated time and p its probability under the model, in
natural logarithms: a likelier program counts as a faster one. The first program has the best score. The
scores of the later ones have a penalty for what they have in common with the earlier ones, so that several
measurements differ (the greedy form of maximal marginal relevance).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Ranking:
    """The weights of a ranking.

    Attributes:
        likelihood: w, the log seconds for one natural unit of log-likelihood.
        variety: penalty in log seconds of a program with the same decisions as an earlier one.
    """

    likelihood: float = 0.02
    variety: float = 0.3


@dataclass(frozen=True)
class ScoredProgram:
    """A program that the model wrote.

    Attributes:
        values: of all decisions, in the order of the space.
        log_probability: under the model.
        estimate_s: estimated seconds of one call; NaN without an estimate.
    """

    values: tuple[int, ...]
    log_probability: float
    estimate_s: float = math.nan


def ranked(programs: Sequence[ScoredProgram], ranking: Ranking, count: int) -> list[ScoredProgram]:
    """The first `count` programs in the order in which they should be measured.

    Without estimates the likeliest come first, whatever they have in common.
    """
    if any(math.isnan(program.estimate_s) for program in programs):
        return sorted(programs, key=lambda one: (-one.log_probability, one.values))[:count]
    waiting = sorted(programs, key=lambda one: (score(one, ranking), one.values))
    similarity = dict.fromkeys(waiting, 0.0)
    chosen: list[ScoredProgram] = []
    while waiting and len(chosen) < count:
        best = min(
            waiting,
            key=lambda one: (score(one, ranking) + ranking.variety * similarity[one], one.values),
        )
        waiting.remove(best)
        chosen.append(best)
        for other in waiting:
            similarity[other] = max(similarity[other], _alike(best.values, other.values))
    return chosen


def score(program: ScoredProgram, ranking: Ranking) -> float:
    """By which programs with estimates are ranked, the least first."""
    return math.log(program.estimate_s) - ranking.likelihood * program.log_probability


def _alike(first: tuple[int, ...], second: tuple[int, ...]) -> float:
    """Share of the decisions that two programs have in common."""
    return sum(a == b for a, b in zip(first, second, strict=True)) / len(first)
