"""How well an estimate does on tasks that taught it nothing, before and after it learns from others."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from host.schedules import DesignSpace
from research.collection.dataset import MeasuredProgram
from research.estimate.choices import choices, log_excess
from research.estimate.constants_fit import Observation, fit_constants

Learned = tuple[tuple[str, float], ...]

# Programs of other tasks that teach, at most: more of them take minutes and change little.
_MOST = 400


@dataclass(frozen=True, eq=False)
class MeasuredTask:
    """The measured programs of a task.

    Attributes:
        space: of the task.
        programs: in the order in which they were proposed.
        whole_sweep: see `choices`.
    """

    space: DesignSpace
    programs: Sequence[MeasuredProgram]
    whole_sweep: bool

    def observations(self) -> list[Observation]:
        """The measured times of the programs with their decisions, for a fit of the constants."""
        return [Observation(self.space, one.decisions, one.seconds) for one in self.programs]


@dataclass(frozen=True)
class TaskScore:
    """One withheld task under one estimate.

    Attributes:
        rule: of its space.
        task: name.
        programs: measured ones.
        order: Spearman's correlation of estimated and measured times; NaN where all times are equal.
        spread: standard deviation of measured over estimated time, in logarithms.
        log_costs: by the way of choosing a program, the mean logarithm of its time over the fastest one's.
    """

    rule: str
    task: str
    programs: int
    order: float
    spread: float
    log_costs: Mapping[str, float]


def score(task: MeasuredTask, learned: Learned) -> TaskScore:
    """The score of one task's programs with parameters moved."""
    observations = task.observations()
    measured = np.array([one.seconds for one in observations])
    estimated = np.array([one.estimate_s(learned) for one in observations])
    excess = log_excess(np.array([one.times_s for one in task.programs]))
    chosen = choices(estimated, [one.origin for one in task.programs], task.whole_sweep)
    return TaskScore(
        rule=task.space.rule.name,
        task=task.space.task.name,
        programs=len(observations),
        order=spearman(estimated, measured),
        spread=float(np.std(np.log(measured / estimated))),
        log_costs={way: float(probabilities @ excess) for way, probabilities in chosen.items()},
    )


def spearman(left: np.ndarray, right: np.ndarray) -> float:
    """Spearman's correlation, ties by their mean rank; NaN where one side is constant."""
    a, b = _ranks(left), _ranks(right)
    if a.std() == 0.0 or b.std() == 0.0:
        return math.nan
    return float(np.corrcoef(a, b)[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    found: np.ndarray = (np.cumsum(counts) - (counts - 1) / 2.0)[inverse]
    return found


def scores_of_withheld(
    by_task: Mapping[str, MeasuredTask],
    folds: int,
    count: int = _MOST,
    seed: int = 0,
    note: Callable[[str], None] = lambda text: None,
) -> list[tuple[TaskScore, TaskScore]]:
    """Each task's score before and after learning from the tasks of the other folds.

    Args:
        by_task: by workload hash.
        folds: parts that the tasks are divided into.
        count: of programs that teach.
        seed: of the division, and of the programs that teach.
        note: receives a line about each fold.
    """
    generator = random.Random(seed)
    keys = sorted(by_task)
    generator.shuffle(keys)
    found = []
    for fold in range(folds):
        withheld = keys[fold::folds]
        teaching = [one for key in keys if key not in withheld for one in by_task[key].observations()]
        fit = fit_constants(generator.sample(teaching, min(count, len(teaching))))
        moved = {name: round(move, 2) for name, move in fit.named_moves() if abs(move) > 0.1}
        note(f"fold {fold}: {fit.count} programs, noise {fit.noise:.3f}, {moved}")
        for key in withheld:
            found.append((score(by_task[key], ()), score(by_task[key], fit.named_moves())))
    return found
