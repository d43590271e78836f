"""The residual of the estimate as a Gaussian process over the programs of one rule.

    T_hat(program) = T(program) exp(r(task, program)),   r ~ GP(0, k)

T is the estimate of the design space. The residual r follows Rasmussen and Williams, "Gaussian Processes for
Machine Learning", 2006, algorithm 2.1. With x = log2(1 + value) of each decision, and p = log2 of the share
of each part of the estimate (arithmetic, transfers from each level of memory),

    k(a, b) = together^2 exp(-|x_a - x_b|^2 / 2 l^2 - |p_a - p_b|^2 / 2 m^2)
            + task^2 [same task] exp(-|x_a - x_b|^2 / 2 l^2)
            + single^2 mean_i exp(-(x_a,i - x_b,i)^2 / 2)
            + offset^2 [same task]
            + linear^2 q_a q_b

In the last term q is log2 of the threads and the shares of the parts themselves. For times it says that a
part, for example the transfers from the second cache, is more or less dear than estimated in all programs.

The watts of programs are learned the same way (`Target`, `host.learned_estimate.power`): log(watts / expected
watts) takes the place of log(T_hat / T). There the shares are what a core multiplies and moves in a second
beside what it can.

Observations of several boards share a part s of this: between two boards, k is multiplied by s (a constant
correlation of tasks in Bonilla, Chai, Williams, "Multi-task Gaussian Process Prediction", 2007). How much is
chosen by likelihood, as the other scales are.

The first term says that programs which are alike in all decisions and are bound by the same parts leave out
the same on all tasks; the second that a task has more of its own; the third that a decision has an effect
whatever the others are; the one after it that the estimate of a whole task may be off, which teaches nothing
about other tasks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from host.learned_estimate.observation import EstimatedProgram, Observation
from host.learned_estimate.triangular import inverted
from host.schedules.api import PARALLEL
from host.schedules.design import TOTAL
from host.schedules.families import installed_rules, part_rules_of

# Observations of one rule that count, evenly from all: factorising more of them takes longer than it helps.
_MOST = 4000
# A residual that is farther than this from the median of its task shows that the program is slow, and not how
# slow: so many times the spread of the task (the median distance from the median), and this at least.
_FARTHEST, _LEAST_FARTHEST = 5.0, 0.3
# Observations of a rule from which its scales are chosen by likelihood; fewer leave the prior ones.
_ENOUGH = 16
# Of them, evenly spread, that are judged by.
_JUDGED = 400
# A part of the estimate below this share, in doublings, does not matter.
_LEAST_SHARE = -6.0
# m: by which shares of parts differ, in doublings, until programs are no longer alike.
_PARTS_LENGTH = 2.0


@dataclass(frozen=True)
class Scales:
    """The scales of the process, in logarithms of seconds, and of decisions.

    Attributes:
        length: l, by which all decisions differ, in doublings, until programs are no longer alike.
        together: standard deviation of what decisions do together on all tasks of a rule.
        single: of what each decision does by itself.
        task: of what decisions do together on one task.
        offset: of a whole task. It is wide: what is far off in a whole task would otherwise be put down to
            the decisions of its programs, and be believed of other tasks.
        noise: of a measurement.
        shared: s, the part of all this that other boards have in common.
        linear: of what a doubling of the threads does, and a part that takes all of the time.
    """

    length: float = 1.4
    together: float = 0.2
    single: float = 0.2
    task: float = 0.12
    offset: float = 2.0
    noise: float = 0.03
    shared: float = 0.7
    linear: float = 0.0


_CHOICES = tuple(
    Scales(length, together, single, task, noise=noise)
    for length in (1.0, 1.4)
    for together, task in ((0.12, 0.12), (0.25, 0.12), (0.12, 0.25))
    for single in (0.12, 0.3)
    for noise in (0.02, 0.05)
)
_SHARED = (0.0, 0.3, 0.6, 0.8, 0.95)
_LINEAR = (0.0, 0.1, 0.3)


@dataclass(frozen=True)
class Target:
    """What a process learns of programs.

    Attributes:
        ratio: what was measured over what is expected without measurements.
        expected: the latter.
        scales: of few observations.
        choices: of which the likelihood of the observations chooses.
        enough: observations from which on it does.
        least_farthest: how far the logarithm of a ratio may be from the median of its task in any case;
            beyond that, what is far from the others of its task is brought nearer.
        linear: values of that scale of which the likelihood chooses too; none leaves those of the choices.
    """

    ratio: Callable[[Observation], float]
    expected: Callable[[EstimatedProgram], float]
    scales: Scales
    choices: tuple[Scales, ...]
    enough: int
    least_farthest: float
    linear: tuple[float, ...] = ()


SECONDS = Target(
    lambda one: one.seconds / one.program.estimate_s,
    lambda program: program.estimate_s,
    Scales(),
    _CHOICES,
    _ENOUGH,
    _LEAST_FARTHEST,
    _LINEAR,
)


@dataclass(frozen=True, eq=False)
class Points:
    """Programs of one rule as the process sees them.

    Attributes:
        decisions: x, shape (programs, decisions of the rule).
        parts: p, shape (programs, parts of the estimate).
        task: workload hash of each program.
        board: of each program, see `Observation`.
        linear: q, shape (programs, 1 + parts of the estimate).
    """

    decisions: np.ndarray
    parts: np.ndarray
    task: np.ndarray
    board: np.ndarray
    linear: np.ndarray

    @classmethod
    def of(
        cls,
        rule: str,
        programs: Sequence[EstimatedProgram],
        parts: Sequence[str],
        boards: Sequence[str] | None = None,
        names: Sequence[str] | None = None,
    ) -> Points:
        """The points of programs.

        Args:
            rule: of the programs.
            programs: to be seen.
            parts: names those of the estimate that count.
            boards: of the programs; None for the board that is estimated.
            names: of the decisions that count; None for those of these programs.
        """
        names = decision_names(rule, programs) if names is None else names
        decisions = [[math.log2(1.0 + max(0, _value(one, name))) for name in names] for one in programs]
        shares = [[_share(one, name) for name in parts] for one in programs]
        logs = np.array(shares, np.float32).reshape(len(programs), len(parts))
        threads = [[math.log2(one.threads)] for one in programs]
        return cls(
            np.array(decisions, np.float32).reshape(len(programs), len(names)),
            logs,
            np.array([one.task for one in programs], str),
            np.array(boards or [""] * len(programs), str),
            np.hstack([np.array(threads, np.float32).reshape(len(programs), 1), np.exp2(logs)]),
        )

    def at(self, which: np.ndarray) -> Points:
        """The points with these indices."""
        own = (self.decisions, self.parts, self.task, self.board, self.linear)
        return Points(*(one[which] for one in own))


def decision_names(rule: str, programs: Sequence[EstimatedProgram]) -> list[str]:
    """The decisions of some programs of a rule; the number of threads is one of the space, and of no rule."""
    names = [kind.name for one in installed_rules() if one.name == rule for kind in one.decisions]
    return [*names, PARALLEL.name] if any(PARALLEL.name in one.values for one in programs) else names


def _value(program: EstimatedProgram, name: str) -> int:
    """The value of a decision; one that is not open has the same value for all programs of the task."""
    return program.threads if name == PARALLEL.name else program.values.get(name, 0)


def _share(program: EstimatedProgram, part: str) -> float:
    """Share of a part in the whole estimate, as a logarithm to base 2."""
    share = program.estimated_s.get(part, 0.0) / program.estimate_s
    # Parts overlap, but none of them is far above the whole.
    return max(_LEAST_SHARE, math.log2(min(share, 2.0))) if share > 0.0 else _LEAST_SHARE


@dataclass(frozen=True, eq=False)
class Similarity:
    """How much the programs of one set have in common with those of another.

    Attributes:
        decisions: |x_a - x_b|^2, shape (programs, other programs).
        parts: |p_a - p_b|^2, of the same shape.
        single: the mean over decisions of exp(-(x_a,i - x_b,i)^2 / 2), of the same shape.
        same: whether they are of one task.
        apart: whether they are of two boards.
        linear: q_a q_b, of the same shape.
    """

    decisions: np.ndarray
    parts: np.ndarray
    single: np.ndarray
    same: np.ndarray
    apart: np.ndarray
    linear: np.ndarray

    @classmethod
    def between(cls, a: Points, b: Points) -> Similarity:
        """Of the programs of `a` with those of `b`."""
        # In single precision: the noise of a measurement is far above its rounding.
        shape = (len(a.task), len(b.task))
        decisions, parts, single = (np.zeros(shape, np.float32) for _ in range(3))
        columns = a.decisions.shape[1]
        for column in range(columns):
            apart = (a.decisions[:, None, column] - b.decisions[None, :, column]) ** 2
            decisions += apart
            single += np.exp(-0.5 * apart) / columns
        for column in range(a.parts.shape[1]):
            parts += (a.parts[:, None, column] - b.parts[None, :, column]) ** 2
        same, other = a.task[:, None] == b.task[None, :], a.board[:, None] != b.board[None, :]
        return cls(decisions, parts, single, same, other, a.linear @ b.linear.T)

    def covariance(self, scales: Scales) -> np.ndarray:
        """Covariance of the logarithms of measured over estimated time, shape (programs, other programs)."""
        alike = np.exp(-self.decisions / (2.0 * scales.length**2))
        bound = np.exp(-self.parts / (2.0 * _PARTS_LENGTH**2))
        found = (scales.together**2 * bound + scales.task**2 * self.same) * alike
        found += scales.single**2 * self.single + scales.offset**2 * self.same
        if scales.linear:
            found += scales.linear**2 * self.linear
        found[self.apart] *= scales.shared
        return found.astype(np.float64)


@dataclass(frozen=True, eq=False)
class Prediction:
    """What is predicted of programs of one rule, as logarithms: T_hat, watts, or a cost of both.

    Attributes:
        mean: of each program, shape (programs,).
        covariance: shape (programs, programs).
    """

    mean: np.ndarray
    covariance: np.ndarray


class RuleProcess:
    """The process of one rule after its observations.

    Args:
        observations: of the rule, one at least, the latest last.
        target: what is learned.
        corrections: logarithms of ratios as known from elsewhere, of which the process learns what is left.

    Attributes:
        observations: those that count.
        rule: of them.
        residuals: logarithms of measured over expected values less the corrections, shape (observations,).
        scales: of the process.
    """

    def __init__(
        self,
        observations: Sequence[Observation],
        target: Target = SECONDS,
        corrections: Callable[[Sequence[EstimatedProgram]], np.ndarray] | None = None,
    ) -> None:
        self.observations = _counting(observations)
        self._target = target
        self.rule = self.observations[0].rule
        programs = [one.program for one in self.observations]
        self._parts = _own_parts(self.rule, programs)
        boards = [one.board for one in self.observations]
        self._names = decision_names(self.rule, programs)
        self._points = Points.of(self.rule, programs, self._parts, boards, self._names)
        self._corrections = np.zeros(len(programs)) if corrections is None else corrections(programs)
        self.residuals = _residuals(self.observations, target, self._corrections)
        self.scales = target.scales
        if len(self.observations) >= target.enough:
            self.scales = self._likeliest()
        similarity = Similarity.between(self._points, self._points)
        self._inverse, self._weights, _ = _solved(similarity, self.residuals, self.scales)

    def _likeliest(self) -> Scales:
        """The scales under which a part of the observations is the likeliest, some of them one by one."""
        which = np.unique(np.linspace(0, len(self.observations) - 1, _JUDGED).astype(int))
        points, residuals = self._points.at(which), self.residuals[which]
        judged = Similarity.between(points, points)

        def likelihood(scales: Scales) -> float:
            return _solved(judged, residuals, scales)[2]

        found = max(choices := self._target.choices, key=likelihood)
        if self._target.linear:
            linear = max((replace(found, linear=one) for one in self._target.linear), key=likelihood).linear
            if linear != found.linear:
                found = max((replace(one, linear=linear) for one in choices), key=likelihood)
        if judged.apart.any():
            found = max((replace(found, shared=share) for share in _SHARED), key=likelihood)
        return found

    def points(self, programs: Sequence[EstimatedProgram]) -> Points:
        """Other programs of the rule as this process sees them."""
        return Points.of(self.rule, programs, self._parts, names=self._names)

    def predict(self, programs: Sequence[EstimatedProgram]) -> Prediction:
        """The predicted logarithms of the target of other programs of the rule, with their covariance."""
        points = self.points(programs)
        expected = np.log([self._target.expected(one) for one in programs])
        return Prediction(expected + self.mean(points), self.covariance(points))

    def mean(self, points: Points) -> np.ndarray:
        """Mean residual of other programs, shape (programs,)."""
        found: np.ndarray = Similarity.between(points, self._points).covariance(self.scales) @ self._weights
        return found

    def covariance(self, points: Points) -> np.ndarray:
        """Covariance of the residuals of other programs, shape (programs, programs)."""
        between = Similarity.between(points, self._points).covariance(self.scales)
        explained = self._inverse @ between.T
        found: np.ndarray = (
            Similarity.between(points, points).covariance(self.scales) - explained.T @ explained
        )
        return found

    def withheld(self, groups: Sequence[np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Mean and covariance of the logarithms of ratios of groups, as all other observations teach them.

        With K the covariance of the observations and y their residuals, the covariance of a group g is
        C = (inverse(K)_gg)^-1, and its mean is y_g - C (inverse(K) y)_g (Rasmussen and Williams, equations
        5.12 for a group).

        Args:
            groups: positions of observations.
        """
        found = []
        for group in groups:
            columns = self._inverse[:, group]
            covariance = np.linalg.inv(columns.T @ columns)
            own = (self._corrections + self.residuals)[group]
            found.append((own - covariance @ self._weights[group], covariance))
        return found


def _own_parts(rule: str, programs: Sequence[EstimatedProgram]) -> list[str]:
    """Parts of the estimate of a rule, without what it says of the parts of a program."""
    elsewhere = tuple(part_rules_of(rule))
    names = {name for one in programs for name in one.estimated_s} - {TOTAL}
    return sorted(name for name in names if not name.startswith(elsewhere))


def _counting(observations: Sequence[Observation]) -> tuple[Observation, ...]:
    """All observations, or of too many as many as count, evenly."""
    if len(observations) <= _MOST:
        return tuple(observations)
    return tuple(observations[one] for one in np.linspace(0, len(observations) - 1, _MOST).astype(int))


def _solved(
    similarity: Similarity, residuals: np.ndarray, scales: Scales
) -> tuple[np.ndarray, np.ndarray, float]:
    """Inverse of the Cholesky factor, weights, and logarithm of the likelihood up to a constant."""
    covariance = similarity.covariance(scales)
    covariance[np.diag_indices_from(covariance)] += scales.noise**2
    inverse = inverted(np.linalg.cholesky(covariance))
    weights = inverse.T @ (inverse @ residuals)
    likelihood = -0.5 * float(residuals @ weights) + float(np.log(np.diag(inverse)).sum())
    return inverse, weights, likelihood


def _residuals(observations: Sequence[Observation], target: Target, known: np.ndarray) -> np.ndarray:
    """Logarithms of ratios less what is known; the farthest of a task on a board brought nearer."""
    found: np.ndarray = np.log([target.ratio(one) for one in observations]) - known
    places = np.array([f"{one.program.task} {one.board}" for one in observations])
    for place in np.unique(places):
        own = places == place
        middle = np.median(found[own])
        farthest = max(target.least_farthest, _FARTHEST * float(np.median(np.abs(found[own] - middle))))
        found[own] = np.clip(found[own], middle - farthest, middle + farthest)
    return found
