"""How well the estimate ranks programs that it did not choose: Spearman correlation with measured times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.operators.bench import Bench
from benchmarks.operators.methods import random_programs
from benchmarks.operators.subject import Subject
from host.errors import MeasureError, SessionLost
from host.schedules import space_for


@dataclass(frozen=True)
class Ranking:
    """Random programs of one operator.

    Attributes:
        estimated_s, measured_s: of the same programs.
    """

    estimated_s: tuple[float, ...]
    measured_s: tuple[float, ...]

    @property
    def spearman(self) -> float:
        """Rank correlation; NaN where there are fewer than three programs or all are equal."""
        return spearman(self.estimated_s, self.measured_s)


def rank(bench: Bench, subject: Subject, count: int) -> Ranking:
    """Measure random programs of one operator and take their estimates."""
    space = space_for(subject.task, bench.profile.hardware, bench.profile.threads)
    pairs: list[tuple[float, float]] = []
    for built in bench.build_all(random_programs(space, count, bench.options.seed + 1)):
        try:
            seconds = bench.time(subject, built, max_s=1.0)
        except (MeasureError, SessionLost):
            continue
        assert built.program.estimate_s is not None
        pairs.append((built.program.estimate_s, seconds))
    return Ranking(tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs))


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """Spearman's rank correlation, ties at their mean rank."""
    if len(first) < 3 or len(set(first)) < 2 or len(set(second)) < 2:
        return float("nan")
    return float(np.corrcoef(_ranks(first), _ranks(second))[0, 1])


def _ranks(values: Sequence[float]) -> np.ndarray:
    array = np.asarray(values)
    _, inverse, counts = np.unique(array, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2.0)[inverse])


def per_class(rankings: dict[str, list[Ranking]]) -> dict[str, float | None]:
    """Mean over the operators of a class, each ranked by itself: sizes of operators must not help."""
    result: dict[str, float | None] = {}
    for kind, entries in rankings.items():
        known = [entry.spearman for entry in entries if np.isfinite(entry.spearman)]
        result[kind] = float(np.mean(known)) if known else None
    return result
