"""What to measure next: the programs that are expected to improve most on the best one."""

from __future__ import annotations

import math

import numpy as np

from host.learned_estimate.process import Prediction

# Standard deviation of a measurement as the choice takes it, in logarithms of seconds.
_NOISE = 0.02


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
        covariance -= np.outer(column, column) / (column[index] + _NOISE**2)
    return chosen


def _improvement(margin: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Expected improvement of a normal variable (Jones, Schonlau, Welch 1998, equation 15)."""
    z = margin / deviation
    density = np.exp(-0.5 * z**2) / math.sqrt(2.0 * math.pi)
    below = np.array([0.5 * math.erfc(-one / math.sqrt(2.0)) for one in z])
    found: np.ndarray = margin * below + deviation * density
    return found
