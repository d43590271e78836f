"""What to measure next: the programs that are expected to save most of a model's time."""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Sequence

import numpy as np

from host.learned_estimate.process import Prediction

# Standard deviation of a measurement as the choice takes it, in logarithms of seconds.
_NOISE = 0.02


class Outlook:
    """What further measurements of one task promise.

    The program to beat is the one with the least expected time among those that are settled, and not the
    least measured time: the fastest of many noisy times is partly luck. A gain is judged by the difference to
    that program, so that what is unknown of the task as a whole promises nothing.

    Args:
        prediction: of programs of the task.
        settled: positions of those that were measured; or of the one to begin with, where none was.
        under_way: positions of those that are being measured.
        weight: calls in one run of the model.
    """

    def __init__(
        self,
        prediction: Prediction,
        settled: Sequence[int],
        under_way: Sequence[int] = (),
        weight: float = 1.0,
    ) -> None:
        self._weight = weight
        self._mean = prediction.mean
        self._taken = set(settled)
        best = min(settled, key=lambda one: float(self._mean[one]))
        self._least = float(self._mean[best])
        own, column = prediction.covariance, prediction.covariance[:, best]
        self._covariance = own - column[:, None] - column[None, :] + own[best, best]
        for position in under_way:
            self.take(position)

    def take(self, position: int) -> None:
        """Judge the others as if a program had been measured and had taken what is expected of it.

        No two choices ask the same question. (The kriging believer of Ginsbourger, Le Riche and Carraro,
        "Kriging is well-suited to parallelize optimization", 2010.)
        """
        self._taken.add(position)
        self._least = min(self._least, float(self._mean[position]))
        column = self._covariance[:, position].copy()
        self._covariance -= np.outer(column, column) / (column[position] + _NOISE**2)

    def next(self) -> tuple[float, int] | None:
        """Seconds of one run of the model that the next program is expected to save, and its position.

        None if there is no further program.
        """
        left = [one for one in range(len(self._mean)) if one not in self._taken]
        if not left:
            return None
        deviation = np.sqrt(np.maximum(np.diag(self._covariance)[left], 1e-12))
        saving = self._weight * _improvement(self._least, self._mean[left], deviation)
        best = int(np.argmax(saving))
        return float(saving[best]), left[best]


def most_promising(
    outlooks: Sequence[Outlook], count: int, dear: Collection[int] = ()
) -> list[tuple[int, int, float]]:
    """The programs to measure next, of all tasks of a model: each one the most promising after those before.

    Args:
        outlooks: of the tasks.
        count: of measurements.
        dear: tasks whose next program takes two measurements, as the one to beat was not measured either.

    Returns:
        Task, position of its program, and seconds of one run of the model that it is expected to save.
    """
    waiting: list[tuple[float, int, int]] = []

    def push(task: int, cost: int) -> None:
        found = outlooks[task].next()
        if found is not None:
            heapq.heappush(waiting, (-found[0] / cost, task, found[1]))

    costs = {task: 2 if task in dear else 1 for task in range(len(outlooks))}
    for task, cost in costs.items():
        push(task, cost)
    chosen: list[tuple[int, int, float]] = []
    while waiting and count > 0:
        worth, task, position = heapq.heappop(waiting)
        chosen.append((task, position, -worth * costs[task]))
        count -= costs[task]
        costs[task] = 1
        outlooks[task].take(position)
        push(task, 1)
    return chosen


def _improvement(least: float, mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Expected seconds below exp(least) of times whose logarithms are normal, shape of `mean`.

    The expected improvement of Jones, Schonlau and Welch (1998, equation 15), for a lognormal variable: with
    z = (least - mean) / deviation, exp(least) P(z) - exp(mean + deviation^2 / 2) P(z - deviation).
    """
    z = (least - mean) / deviation
    below = np.array([_below(one) for one in z])
    partly = np.array([_below(one) for one in z - deviation])
    gained = math.exp(least) * below - np.exp(mean + 0.5 * deviation**2) * partly
    found: np.ndarray = np.maximum(gained, 0.0)
    return found


def _below(value: float) -> float:
    """Distribution function of the standard normal variable."""
    return 0.5 * math.erfc(-value / math.sqrt(2.0))
