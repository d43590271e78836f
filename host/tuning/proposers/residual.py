"""What the estimate leaves out, learned from the programs that a board has measured.

    T_hat(program) = T(program) exp(r(task, program)),   r ~ GP(0, k)

T is the estimate of the design space. The residual r is a Gaussian process over the programs of one rule
(Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006, algorithm 2.1):

    k(a, b) = (rule^2 + task^2 [same task]) exp(-|x_a - x_b|^2 / 2 l^2) + offset^2 [same task]

with x = log2(1 + value) of each decision. So programs of one task teach each other, and to a lesser degree
programs of other tasks; how far the estimate of a whole task is off teaches nothing about other tasks.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from host.schedules.api import Decisions
from host.schedules.design import DesignSpace

# Observations of one rule that count, the latest: factorising more of them takes longer than it helps.
_MOST = 1000
# A residual that is farther than this from the median of its task says that the program is slow, and not how
# slow: so many times the spread of the task (the median distance from the median), and this at least.
_FARTHEST, _LEAST_FARTHEST = 5.0, 0.3
# Observations of a rule from which its scales are chosen by likelihood; fewer leave the prior ones.
_ENOUGH = 16
# Of them, the latest that are judged by.
_JUDGED = 200


@dataclass(frozen=True)
class Scales:
    """The scales of the process, in logarithms of seconds, and of decisions.

    Attributes:
        length: by which decisions differ, in doublings, until programs are no longer alike.
        rule: standard deviation of what the tasks of a rule share.
        task: of what one task has of its own.
        offset: of a whole task.
        noise: of a measurement.
    """

    length: float = 1.0
    rule: float = 0.12
    task: float = 0.12
    offset: float = 0.4
    noise: float = 0.02


_CHOICES = tuple(
    Scales(length, rule, task, noise=noise)
    for length in (1.0, 2.0)
    for rule, task in ((0.12, 0.12), (0.25, 0.12), (0.06, 0.12), (0.06, 0.25))
    for noise in (0.01, 0.03, 0.08)
)


@dataclass(frozen=True, eq=False)
class Observation:
    """A measured program.

    Attributes:
        space: of its task.
        values: of its decisions.
        seconds: of one call.
    """

    space: DesignSpace
    values: Decisions
    seconds: float


@dataclass(frozen=True, eq=False)
class Prediction:
    """Seconds of programs of one task, as the logarithm of T_hat.

    Attributes:
        mean: of each program, shape (programs,).
        covariance: shape (programs, programs).
    """

    mean: np.ndarray
    covariance: np.ndarray


class LearnedEstimate:
    """The estimate of each program, corrected by what the board has measured.

    Args:
        observations: measured programs of any tasks; of too many, the last ones of each rule count.
    """

    def __init__(self, observations: Sequence[Observation]) -> None:
        by_rule: dict[str, list[Observation]] = defaultdict(list)
        for one in observations:
            by_rule[one.space.rule.name].append(one)
        self._fits = {rule: _Fit(known[-_MOST:]) for rule, known in by_rule.items()}

    def predict(self, space: DesignSpace, programs: Sequence[Decisions]) -> Prediction:
        """What programs of one task take."""
        estimated = np.log([space.estimate_s(values) for values in programs])
        fit = self._fits.get(space.rule.name)
        points = _Points.of([(space, values) for values in programs])
        if fit is None:
            return Prediction(estimated, _covariance(points, points, Scales()))
        mean, covariance = fit.residual(points)
        return Prediction(estimated + mean, covariance)


@dataclass(frozen=True, eq=False)
class _Points:
    """Programs of one rule as the process sees them: `x` has shape (programs, decisions of the rule)."""

    x: np.ndarray
    task: np.ndarray

    @classmethod
    def of(cls, programs: Sequence[tuple[DesignSpace, Decisions]]) -> _Points:
        x = [
            # A decision that is not open has one value for all programs of the task.
            [math.log2(1.0 + max(0, values.get(kind.name, 0))) for kind in space.rule.decisions]
            for space, values in programs
        ]
        return cls(np.array(x), np.array([space.task.workload_hash for space, _ in programs]))

    def latest(self, count: int) -> _Points:
        """The last programs."""
        return _Points(self.x[-count:], self.task[-count:])


def _covariance(a: _Points, b: _Points, scales: Scales) -> np.ndarray:
    squared = ((a.x[:, None, :] - b.x[None, :, :]) ** 2).sum(axis=2)
    same = a.task[:, None] == b.task[None, :]
    alike = np.exp(-squared / (2.0 * scales.length**2))
    found: np.ndarray = (scales.rule**2 + scales.task**2 * same) * alike + scales.offset**2 * same
    return found


class _Fit:
    """The process of one rule after its observations."""

    def __init__(self, observations: Sequence[Observation]) -> None:
        self._points = _Points.of([(one.space, one.values) for one in observations])
        self._residuals = _residuals(observations, self._points.task)
        self._scales = Scales()
        if len(observations) >= _ENOUGH:
            points, residuals = self._points.latest(_JUDGED), self._residuals[-_JUDGED:]
            self._scales = max(_CHOICES, key=lambda scales: _solved(points, residuals, scales)[2])
        self._lower, self._weights, _ = _solved(self._points, self._residuals, self._scales)

    def residual(self, points: _Points) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance of the residual of other programs."""
        between = _covariance(points, self._points, self._scales)
        explained = np.linalg.solve(self._lower, between.T)
        own = _covariance(points, points, self._scales)
        return between @ self._weights, own - explained.T @ explained


def _solved(points: _Points, residuals: np.ndarray, scales: Scales) -> tuple[np.ndarray, np.ndarray, float]:
    """Cholesky factor, weights, and logarithm of the likelihood up to a constant."""
    covariance = _covariance(points, points, scales)
    covariance[np.diag_indices_from(covariance)] += scales.noise**2
    lower = np.linalg.cholesky(covariance)
    weights = np.linalg.solve(lower.T, np.linalg.solve(lower, residuals))
    likelihood = -0.5 * float(residuals @ weights) - float(np.log(np.diag(lower)).sum())
    return lower, weights, likelihood


def _residuals(observations: Sequence[Observation], tasks: np.ndarray) -> np.ndarray:
    """Logarithms of measured over estimated times; the farthest of a task brought nearer."""
    found = np.log([one.seconds / one.space.estimate_s(one.values) for one in observations])
    for task in np.unique(tasks):
        own = tasks == task
        middle = np.median(found[own])
        farthest = max(_LEAST_FARTHEST, _FARTHEST * float(np.median(np.abs(found[own] - middle))))
        found[own] = np.clip(found[own], middle - farthest, middle + farthest)
    return found


def expected_improvement(prediction: Prediction, best_s: float, count: int) -> list[int]:
    """The programs that are expected to improve most on the best one, one after the other.

    After each choice the others are judged as if it had been measured and had taken what is expected of it:
    no two choices ask the same question. (The kriging believer of Ginsbourger, Le Riche and Carraro, "Kriging
    is well-suited to parallelize optimization", 2010.)

    Args:
        prediction: of the programs.
        best_s: seconds of the best program so far.
        count: how many to choose.

    Returns:
        Their positions, best first.
    """
    covariance = prediction.covariance.copy()
    best = math.log(best_s)
    chosen: list[int] = []
    left = set(range(len(prediction.mean)))
    while left and len(chosen) < count:
        deviation = np.sqrt(np.maximum(np.diag(covariance), 1e-12))
        gain = _improvement(best - prediction.mean, deviation)
        index = max(sorted(left), key=lambda one: float(gain[one]))
        chosen.append(index)
        left.remove(index)
        best = min(best, float(prediction.mean[index]))
        column = covariance[:, index].copy()
        covariance -= np.outer(column, column) / (column[index] + Scales().noise ** 2)
    return chosen


def _improvement(margin: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Expected improvement of a normal variable (Jones, Schonlau, Welch 1998, equation 15)."""
    z = margin / deviation
    density = np.exp(-0.5 * z**2) / math.sqrt(2.0 * math.pi)
    below = np.array([0.5 * math.erfc(-one / math.sqrt(2.0)) for one in z])
    found: np.ndarray = margin * below + deviation * density
    return found
