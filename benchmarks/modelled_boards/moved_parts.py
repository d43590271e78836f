"""Parts of the estimate as parameters with priors, which the records of a board move."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from host.learned_estimate.observation import EstimatedProgram, Observation
from host.schedules.design import TOTAL

# Standard deviations: of the logarithm of a part's factor before anything is measured, and of a residual.
_PRIOR, _RESIDUAL = 0.5, 0.2
# A residual that is farther counts as if it were this far (Huber's loss).
_FARTHEST = 0.4
_STEPS = 20


class MovedParts:
    """T_hat = T sum_p exp(theta_p) part_p / sum_p part_p, with the most probable theta under N(0, 0.5^2).

    The times of a task teach by their ratios alone: how far the estimate of a whole task is off says nothing.
    theta is found by Gauss and Newton's steps.

    Args:
        observations: measured programs of one rule.
    """

    def __init__(self, observations: Sequence[Observation]) -> None:
        names = {name for one in observations for name in one.program.estimated_s}
        self.parts = sorted(names - {TOTAL})
        self.moves = np.zeros(len(self.parts))
        if not self.parts:
            return
        programs = [one.program for one in observations]
        measured = np.log([one.seconds / one.program.estimate_s for one in observations])
        tasks = _positions(programs)
        matrix = self._matrix(programs)
        for _ in range(_STEPS):
            moved = matrix * np.exp(self.moves)
            shares = moved / moved.sum(axis=1, keepdims=True)
            residual = _centred(measured - self._log_ratio(matrix), tasks)
            slopes = _centred(shares, tasks)
            weights = np.minimum(1.0, _FARTHEST / np.maximum(np.abs(residual), 1e-9)) / _RESIDUAL**2
            curvature = (slopes.T * weights) @ slopes + np.eye(len(self.parts)) / _PRIOR**2
            gradient = slopes.T @ (weights * residual) - self.moves / _PRIOR**2
            self.moves = self.moves + np.linalg.solve(curvature, gradient)

    def correction(self, programs: Sequence[EstimatedProgram]) -> np.ndarray:
        """What is added to the logarithm of each program's estimate, shape (programs,)."""
        if not self.parts:
            return np.zeros(len(programs))
        return self._log_ratio(self._matrix(programs))

    def _matrix(self, programs: Sequence[EstimatedProgram]) -> np.ndarray:
        """Seconds of the parts, shape (programs, parts); each at least a millionth of the total."""
        return np.array(
            [
                [max(one.estimated_s.get(part, 0.0), 1e-6 * one.estimate_s) for part in self.parts]
                for one in programs
            ]
        )

    def _log_ratio(self, matrix: np.ndarray) -> np.ndarray:
        found: np.ndarray = np.log((matrix * np.exp(self.moves)).sum(axis=1) / matrix.sum(axis=1))
        return found


def _positions(programs: Sequence[EstimatedProgram]) -> list[np.ndarray]:
    """Positions of the programs of each task."""
    found: dict[str, list[int]] = defaultdict(list)
    for position, one in enumerate(programs):
        found[one.task].append(position)
    return [np.array(one) for one in found.values()]


def _centred(values: np.ndarray, tasks: Sequence[np.ndarray]) -> np.ndarray:
    """The values less their mean over the programs of the same task."""
    found = values.copy()
    for which in tasks:
        found[which] -= found[which].mean(axis=0)
    return found
