"""Constants of the estimates by maximum a posteriori, robust against programs that the estimate cannot see.

The logarithm of a measured time is that of the estimate plus an offset of its task, N(0, TASK_SPREAD^2), plus
noise of Student's t distribution with 4 degrees of freedom. Gauss-Newton steps on reweighted observations
(Lange, Little, Taylor, JASA 1989) find the most probable moves m of the parameters, m ~ N(0, spread^2).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from host.schedules.constants import Parameter, parameters_of
from host.schedules.design import DesignSpace

# The estimate of a whole task is off by so much in the logarithm, in the same direction for all its programs.
TASK_SPREAD = 0.3
_FREEDOM = 4.0
_STEPS = 6
# Finite difference of a move.
_DIFFERENCE = 0.05
_LEAST_NOISE, _LARGEST_MOVE = 0.02, 2.0


@dataclass(frozen=True, eq=False)
class Observation:
    """A measured program.

    Attributes:
        space: of its task.
        values: of its decisions.
        seconds: of one call.
    """

    space: DesignSpace
    values: Mapping[str, int]
    seconds: float

    def estimate_s(self, learned: tuple[tuple[str, float], ...]) -> float:
        """Estimated seconds of one call, with these moves of the parameters (logarithms, by name)."""
        hardware = replace(self.space.hardware, learned=learned)
        return replace(self.space, hardware=hardware).estimate_s(self.values)


@dataclass(frozen=True)
class ConstantsFit:
    """The fitted parameters of the estimates.

    Attributes:
        parameters: all that the observed rules read.
        moves: logarithms by which each has moved.
        deviations: standard deviation of each move after the observations (Laplace's approximation).
        noise: scale of the noise.
        count: observations.
    """

    parameters: tuple[Parameter, ...]
    moves: tuple[float, ...]
    deviations: tuple[float, ...]
    noise: float
    count: int

    def named_moves(self) -> tuple[tuple[str, float], ...]:
        """Name and move of every parameter."""
        return tuple((one.name, move) for one, move in zip(self.parameters, self.moves, strict=True))


def fit_constants(observations: Sequence[Observation]) -> ConstantsFit:
    """The most probable constants, given measured programs of one board.

    Args:
        observations: of any number of tasks; none leaves everything as it is.
    """
    rules = {one.space.rule.name: one.space.rule for one in observations}
    if not observations:
        return ConstantsFit((), (), (), 0.0, 0)
    constants = [constant for rule in rules.values() for constant in rule.constants]
    parameters = parameters_of(constants, observations[0].space.hardware)
    problem = _Problem(observations, parameters)
    moves = np.zeros(len(parameters))
    residuals = problem.residuals(moves)
    noise = problem.noise(residuals)
    best = problem.loss(moves, residuals, noise)
    precision = np.eye(len(parameters))
    for _ in range(_STEPS):
        step, precision = problem.step(moves, residuals, noise)
        improved = False
        for share in (1.0, 0.5, 0.25, 0.1):
            tried = np.clip(moves + share * step, -_LARGEST_MOVE, _LARGEST_MOVE)
            left = problem.residuals(tried)
            loss = problem.loss(tried, left, noise)
            if loss < best - 1e-3:
                moves, residuals, improved = tried, left, True
                break
        if not improved:
            break
        noise = problem.noise(residuals)
        best = problem.loss(moves, residuals, noise)
    deviations = np.sqrt(np.diag(np.linalg.inv(precision)))
    found = tuple(float(move) for move in moves)
    return ConstantsFit(parameters, found, tuple(map(float, deviations)), noise, len(observations))


class _Problem:
    """Observations and parameters as arrays."""

    def __init__(self, observations: Sequence[Observation], parameters: Sequence[Parameter]) -> None:
        self._observations = observations
        self._parameters = parameters
        self._spreads = np.array([one.spread for one in parameters])
        self._measured = np.log([one.seconds for one in observations])
        tasks = {one.space.task.workload_hash: None for one in observations}
        numbers = {key: number for number, key in enumerate(tasks)}
        rows = [numbers[one.space.task.workload_hash] for one in observations]
        self._tasks = np.zeros((len(observations), len(numbers)))
        self._tasks[np.arange(len(rows)), rows] = 1.0
        # Observations whose estimates read each parameter.
        declared = [{constant.name for constant in one.space.rule.constants} for one in observations]
        every = set[str]().union(*declared)
        self._readers = [
            [number for number, names in enumerate(declared) if one.name in names or one.name not in every]
            for one in parameters
        ]

    def _estimates(self, moves: np.ndarray, numbers: Sequence[int]) -> np.ndarray:
        """Logarithm of the estimate of some programs."""
        learned = tuple(
            (one.name, float(move)) for one, move in zip(self._parameters, moves, strict=True) if move
        )
        return np.array([math.log(self._observations[n].estimate_s(learned)) for n in numbers])

    def residuals(self, moves: np.ndarray) -> np.ndarray:
        """Measured less estimated, in logarithms."""
        found: np.ndarray = self._measured - self._estimates(moves, range(len(self._measured)))
        return found

    def _without_offsets(self, residuals: np.ndarray, noise: float) -> tuple[np.ndarray, np.ndarray]:
        """Residuals less the most probable offset of their task, and the weights of the observations."""
        weights = np.ones(len(residuals))
        left = residuals
        for _ in range(3):
            total = self._tasks.T @ weights
            sums = self._tasks.T @ (weights * residuals)
            offsets = sums / (total + (noise / TASK_SPREAD) ** 2)
            left = residuals - self._tasks @ offsets
            weights = (_FREEDOM + 1.0) / (_FREEDOM + (left / noise) ** 2)
        return left, weights

    def noise(self, residuals: np.ndarray) -> float:
        """Scale of the noise, by the median of what is left."""
        left, _ = self._without_offsets(residuals, 0.1)
        return max(_LEAST_NOISE, float(np.median(np.abs(left))) * 1.4826)

    def loss(self, moves: np.ndarray, residuals: np.ndarray, noise: float) -> float:
        """Negative logarithm of the posterior density, up to a constant."""
        left, _ = self._without_offsets(residuals, noise)
        tails = 0.5 * (_FREEDOM + 1.0) * np.log1p((left / noise) ** 2 / _FREEDOM)
        return float(tails.sum() + 0.5 * ((moves / self._spreads) ** 2).sum())

    def step(self, moves: np.ndarray, residuals: np.ndarray, noise: float) -> tuple[np.ndarray, np.ndarray]:
        """Gauss-Newton step of the moves, and the precision of their posterior."""
        here = self._measured - residuals
        slopes = np.zeros((len(here), len(moves)))
        for number, readers in enumerate(self._readers):
            there = moves.copy()
            there[number] += _DIFFERENCE
            slopes[readers, number] = (self._estimates(there, readers) - here[readers]) / _DIFFERENCE
        _, weights = self._without_offsets(residuals, noise)
        scaled = weights / noise**2
        # Offsets of tasks are unknowns too.
        design = np.concatenate([slopes, self._tasks], axis=1)
        prior = np.concatenate([1.0 / self._spreads**2, np.full(self._tasks.shape[1], TASK_SPREAD**-2)])
        normal = design.T @ (scaled[:, None] * design) + np.diag(prior)
        right = design.T @ (scaled * residuals)
        right[: len(moves)] -= moves / self._spreads**2
        count = len(moves)
        solved = np.linalg.solve(normal, right)
        # Schur's complement: the offsets integrated out.
        inner = normal[count:, count:]
        cross = normal[:count, count:]
        return solved[:count], normal[:count, :count] - cross @ np.linalg.solve(inner, cross.T)
