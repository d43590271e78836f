"""Whether what a board has measured makes first programs faster, judged on tasks that taught nothing."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from host.learned_estimate.estimate import LearnedEstimate, expected_choice
from host.learned_estimate.observation import Observation
from host.learned_estimate.power import LearnedPower, RulePower, with_power
from host.learned_estimate.process import Prediction, RuleProcess
from host.schedules.families import installed_rules
from host.statistics import Estimate, mean_of, one_sided_bound

# A task counts as evidence if so many of its programs were measured.
_PROGRAMS = 4
# So many tasks have to count as evidence.
_TASKS = 6
# From so many models on, a task is judged by what other models taught, else by what other tasks did.
_MODELS = 3
# What the bound of the agreement has to be above. It is not 0: corrections that agree by chance cost more
# than those that agree a little gain.
_LEAST_AGREEMENT = 0.1
# A product of two lengths of logarithms that is rounding.
_CONSTANT = 1e-12


@dataclass(frozen=True)
class Evidence:
    """What one rule's learned estimate says of withheld tasks, beside what was measured of them.

    Attributes:
        rule: of the programs.
        speed: time, or another cost, of the program with the least estimate over that of the program that
            the learned estimate chooses (`expected_choice`), both among the measured ones; geometric mean
            over tasks.
        programs: measured ones that teach.
        models: that they were measured for.
        since: the day of the first of them, "" if unknown.
        agreement: correlation of the learned corrections of the estimate with the measured ones within a
            task, a mean over tasks.
        agreement_bound: what it is at least, with a one-sided 95% bound; None with too few tasks.
    """

    rule: str
    speed: Estimate
    programs: int
    models: int = 1
    since: str = ""
    agreement: float = 0.0
    agreement_bound: float | None = None

    @property
    def bound(self) -> float | None:
        """What `speed` is at least, with a one-sided 95% bound; None with fewer than two tasks."""
        return one_sided_bound(self.speed)

    @property
    def convinces(self) -> bool:
        """Whether choices are made by the learned estimate.

        Its corrections have to be shown to agree with the measured ones, and its choices must not be slower
        on the whole. A bound above 1 of the speed would take several times as many tasks: a choice depends on
        two programs of a task, the agreement on all of them.
        """
        shown = self.agreement_bound is not None and self.agreement_bound > _LEAST_AGREEMENT
        return self.speed.n >= _TASKS and shown and self.speed.value >= 1.0


def shows_gain(speed: Estimate) -> bool:
    """Whether a speed beside another is shown to be above 1: by a one-sided 95% bound, on six tasks or more.

    Args:
        speed: geometric mean over tasks.
    """
    bound = one_sided_bound(speed)
    return speed.n >= _TASKS and bound is not None and bound > 1.0


def evidence_for(estimate: LearnedEstimate) -> list[Evidence]:
    """The evidence for the choices by a learned estimate, of each rule."""
    return [evidence_of(one, estimate.power, estimate.exponent) for one in estimate.processes.values()]


def convincing_rules(evidence: Sequence[Evidence]) -> set[str]:
    """The rules by whose learned estimate choices are made.

    Those whose evidence convinces; and where a rule has too few tasks to be judged by and its programs have
    parts, if the evidence of all rules of these parts does.
    """
    tasks = {one.rule: one.speed.n for one in evidence}
    found = {one.rule for one in evidence if one.convinces}
    joined = {
        one.name
        for one in installed_rules()
        if one.part_rules and found.issuperset(one.part_rules.values()) and tasks.get(one.name, 0) < _TASKS
    }
    return found | joined


def evidence_of(process: RuleProcess, power: LearnedPower | None = None, exponent: float = 0.0) -> Evidence:
    """The evidence for a process in its own observations.

    Args:
        process: of the times.
        power: of the board; None judges by times alone, as a task is of which too few watts are known.
        exponent: of watts in the cost.
    """
    known = process.observations
    judged = _judged(process, None if power is None else power.rules.get(process.rule), exponent)
    speed = mean_of([one.speed for one in judged]) if judged else Estimate(1.0, n=0)
    # The bound of a geometric mean is that of a mean of logarithms.
    agreement = mean_of([math.exp(one.agreement) for one in judged]) if judged else speed
    bound = one_sided_bound(agreement)
    days = [one.made_at[:10] for one in known if one.made_at]
    models = len({one.model for one in known})
    about = (process.rule, speed, len(known), models, min(days, default=""))
    return Evidence(*about, math.log(agreement.value), None if bound is None else math.log(bound))


@dataclass(frozen=True)
class _JudgedTask:
    """What is learned of one withheld task, see `Evidence`."""

    speed: float
    agreement: float


def _judged(process: RuleProcess, watts: RulePower | None, exponent: float) -> list[_JudgedTask]:
    """Every task of which enough programs were measured, as other tasks teach it."""
    known = process.observations
    found = []
    withheld = _withheld_together(known)
    learned = process.withheld([group for _, group in withheld])
    for (own, group), (mean, covariance) in zip(withheld, learned, strict=True):
        for positions in _by_task(known, own).values():
            powered = [] if watts is None else [one for one in positions if watts.holds(known[one])]
            by_cost = _programs(known, powered) >= _PROGRAMS
            positions = powered if by_cost else positions
            if _programs(known, positions) < _PROGRAMS:
                continue
            which = np.searchsorted(group, positions)
            estimated = np.log([known[one].program.estimate_s for one in positions])
            prediction = Prediction(estimated + mean[which], covariance[np.ix_(which, which)])
            costs = np.array([known[one].seconds for one in positions])
            if by_cost and watts is not None:
                some = [known[one] for one in positions]
                prediction = with_power(
                    prediction, watts.withheld([known[one] for one in group], some), exponent
                )
                costs *= np.array([watts.relative(one) for one in some]) ** exponent
            first = int(np.argmin(estimated))
            speed = float(costs[first] / costs[expected_choice(prediction, first)])
            corrections = prediction.mean - estimated, np.log(costs) - estimated
            found.append(_JudgedTask(speed, _correlation(*corrections)))
    return found


def _correlation(left: np.ndarray, right: np.ndarray) -> float:
    """Correlation of two series; 0 where one is constant, which says nothing of the other."""
    left, right = left - left.mean(), right - right.mean()
    scale = float(np.linalg.norm(left) * np.linalg.norm(right))
    return float(left @ right) / scale if scale > _CONSTANT else 0.0


def _programs(observations: Sequence[Observation], positions: Sequence[int]) -> int:
    """How many different programs of a task some positions have."""
    return len({observations[one].program.key for one in positions})


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
