"""Whether what a board has measured makes first programs faster, judged on tasks that taught nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from host.learned_estimate.estimate import cautious_choice
from host.learned_estimate.observation import Observation
from host.learned_estimate.process import Prediction, RuleProcess
from host.statistics import Estimate, mean_of, one_sided_bound

# A task counts as evidence if so many of its programs were measured.
_PROGRAMS = 4
# So many tasks have to count as evidence.
_TASKS = 6
# From so many models on, a task is judged by what other models taught, else by what other tasks did.
_MODELS = 3


@dataclass(frozen=True)
class Evidence:
    """The effect of one rule's learned estimate on the first programs of withheld tasks.

    Attributes:
        rule: of the programs.
        speed: time of the program with the least estimate over that of the program which the learned
            estimate chooses (`cautious_choice`), both among the measured ones; geometric mean over tasks.
        programs: measured ones that teach.
        models: that they were measured for.
        since: the day of the first of them, "" if unknown.
    """

    rule: str
    speed: Estimate
    programs: int
    models: int = 1
    since: str = ""

    @property
    def bound(self) -> float | None:
        """What `speed` is at least, with a one-sided 95% bound; None with fewer than two tasks."""
        return one_sided_bound(self.speed)

    @property
    def convinces(self) -> bool:
        """Whether first programs are shown to be faster (`shows_gain`)."""
        return shows_gain(self.speed)


def shows_gain(speed: Estimate) -> bool:
    """Whether a speed beside another is shown to be above 1: by a one-sided 95% bound, on six tasks or more.

    Args:
        speed: geometric mean over tasks.
    """
    bound = one_sided_bound(speed)
    return speed.n >= _TASKS and bound is not None and bound > 1.0


def evidence_of(process: RuleProcess) -> Evidence:
    """The evidence for a process in its own observations."""
    known = process.observations
    speeds = []
    withheld = _withheld_together(known)
    learned = process.withheld([group for _, group in withheld])
    for (own, group), (mean, covariance) in zip(withheld, learned, strict=True):
        for positions in _by_task(known, own).values():
            programs = {tuple(known[one].program.values.items()) for one in positions}
            if len(programs) >= _PROGRAMS:
                which = np.searchsorted(group, positions)
                estimated = np.log([known[one].program.estimate_s for one in positions])
                prediction = Prediction(estimated + mean[which], covariance[np.ix_(which, which)])
                first = int(np.argmin(estimated))
                chosen = cautious_choice(prediction, first)
                speeds.append(known[positions[first]].seconds / known[positions[chosen]].seconds)
    speed = mean_of(speeds) if speeds else Estimate(1.0, n=0)
    days = [one.made_at[:10] for one in known if one.made_at]
    models = len({one.model for one in known})
    return Evidence(process.rule, speed, len(known), models, min(days, default=""))


def _by_task(observations: Sequence[Observation], positions: Iterable[int]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for position in positions:
        # Other boards teach, and judge nothing here.
        if not observations[position].board:
            found[observations[position].program.task].append(position)
    return found


def _withheld_together(observations: Sequence[Observation]) -> list[tuple[list[int], np.ndarray]]:
    """Positions of each model's or task's observations, and of all that are withheld with them, in order.

    What other models have measured of a model's tasks is withheld too.
    """
    of_models = len({one.model for one in observations}) >= _MODELS
    groups: dict[str, list[int]] = defaultdict(list)
    for position, one in enumerate(observations):
        groups[one.model if of_models else one.program.task].append(position)
    found = []
    for own in groups.values():
        tasks = {observations[one].program.task for one in own}
        every = [position for position, one in enumerate(observations) if one.program.task in tasks]
        found.append((own, np.array(every)))
    return found
