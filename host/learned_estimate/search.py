"""Programs that the learned estimate takes for fast, found without measuring."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from host.errors import ScheduleError
from host.gensor import Gensor
from host.learned_estimate.estimate import LearnedEstimate, cautious_choice, expected_choice
from host.learned_estimate.observation import values_of
from host.learned_estimate.process import Prediction
from host.model import DeviceProfile
from host.schedules.api import Decisions
from host.schedules.design import DesignSpace
from host.schedules.drawing import draw_ranked

# Programs to begin with: constructed ones, and random ones, each the best of so many by the estimate.
_CONSTRUCTED, _RANDOM, _RANKED = 24, 16, 4
# Programs from which the search goes on to better neighbours, and how far at most.
_DESCENTS, _STEPS = 3, 40
# Of the programs that a search has looked at, those with the least means that are judged.
_JUDGED = 96


def search(
    estimate: LearnedEstimate,
    space: DesignSpace,
    profile: DeviceProfile,
    known: Sequence[Decisions],
    seed: int,
) -> list[dict[str, int]]:
    """Different programs of a task, the one with the least learned estimate first.

    They descend from a pool of constructed programs, random ones and the known ones (`descended`).

    Args:
        estimate: of the board.
        space: of the task.
        profile: of the device.
        known: programs to begin with besides those of the pool.
        seed: of the random ones.
    """
    return descended(estimate, space, [*known, *_pool(space, profile, seed)])


def descended(
    estimate: LearnedEstimate, space: DesignSpace, programs: Sequence[Decisions]
) -> list[dict[str, int]]:
    """Different programs of a task, the one with the least learned estimate first.

    The best of the given ones go on to their best neighbours, as long as that makes them better; all that was
    looked at is returned.

    Args:
        estimate: of the board.
        space: of the task.
        programs: to begin with, one at least.
    """
    seen = _EstimatedPrograms(estimate, space)
    seen.add(programs)
    for start in seen.in_order()[:_DESCENTS]:
        here = start
        for _ in range(_STEPS):
            around = list(space.neighbours(here))
            seen.add(around)
            lowest = min([here, *around], key=seen.mean)
            if lowest == here:
                break
            here = lowest
    return seen.in_order()


def best_found(
    estimate: LearnedEstimate, space: DesignSpace, programs: Sequence[Decisions], count: int
) -> list[tuple[dict[str, int], float]]:
    """The best programs of a task that a search finds, each with the cost in seconds that is expected of it.

    Args:
        estimate: of the board.
        space: of the task.
        programs: to begin with, one at least.
        count: programs at most.
    """
    found = descended(estimate, space, programs)[:count]
    return list(zip(found, np.exp(estimate.means(space, found)).tolist(), strict=True))


def first_program(
    estimate: LearnedEstimate,
    space: DesignSpace,
    profile: DeviceProfile,
    given: Decisions,
    seed: int,
    known: Sequence[Decisions] = (),
    found: Sequence[Decisions] = (),
) -> tuple[dict[str, int], float]:
    """The program to take without measuring, and how many times as fast as the given one it should be.

    Of the programs that are proposed without the learned estimate, the one with the least expected cost is
    taken; one that was found by that estimate has to promise more.

    Args:
        estimate: of the board.
        space: of the task.
        profile: of the device.
        given: the program to beat.
        seed: of random programs that are looked at.
        known: further programs that were proposed without the estimate.
        found: further programs that were found by it.
    """
    proposed = [dict(given), *map(dict, known), *_pool(space, profile, seed)]
    others = list(map(dict, found))
    programs = [*proposed, *others, *descended(estimate, space, [*proposed, *others])[:_JUDGED]]
    prediction = estimate.predict(space, programs)
    among = slice(len(proposed))
    best = expected_choice(Prediction(prediction.mean[among], prediction.covariance[among, among]), 0)
    chosen = cautious_choice(prediction, best)
    return programs[chosen], float(np.exp(prediction.mean[0] - prediction.mean[chosen]))


class _EstimatedPrograms:
    """Programs that were looked at, each once, with the logarithm of the learned estimate."""

    def __init__(self, estimate: LearnedEstimate, space: DesignSpace) -> None:
        self._estimate = estimate
        self._space = space
        self._names = [decision.name for decision in space.decisions]
        self._means: dict[tuple[int, ...], float] = {}

    def add(self, programs: Sequence[Decisions]) -> None:
        """Estimates the programs that were not estimated yet."""
        new = {self._key(one): one for one in programs if self._key(one) not in self._means}
        if new:
            means = self._estimate.means(self._space, list(new.values()))
            self._means.update(zip(new, means.tolist(), strict=True))

    def mean(self, program: Decisions) -> float:
        """Mean of the estimated logarithm of time of a program that was added."""
        return self._means[self._key(program)]

    def in_order(self) -> list[dict[str, int]]:
        """All of them, the least mean first."""
        keys = sorted(self._means, key=lambda key: (self._means[key], key))
        return [dict(zip(self._names, key, strict=True)) for key in keys]

    def _key(self, program: Decisions) -> tuple[int, ...]:
        return tuple(program[name] for name in self._names)


def _pool(space: DesignSpace, profile: DeviceProfile, seed: int) -> list[dict[str, int]]:
    """The programs that the search begins with: those of Gensor, and the best-ranked of random ones."""
    found = [values_of(one) for one in Gensor().propose(space, profile, (), _CONSTRUCTED, seed=0)]
    generator = random.Random(f"{space.task.workload_hash}/{seed}")
    for _ in range(_RANDOM):
        try:
            found.append(draw_ranked(space, generator, _RANKED))
        except ScheduleError:
            break
    return found
