"""A tuning that takes its measurements from recorded programs."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.learned_estimate.withheld import (
    RANKED,
    Kernel,
    model_speed,
)
from host.learned_estimate.improvement import Outlook, most_promising
from host.learned_estimate.observation import Observation
from host.learned_estimate.process import Points, Prediction, RuleProcess, Scales, Similarity
from host.records.choice import CLOSE
from host.tuning.scheduler import TaskState, allocate_trials

LEAST_PROGRAMS = 10
# Programs of other models that teach: enough, and quickly learned.
TRAINING_PROGRAMS = 1500


class ReplayedTuning:
    """The tuning of one model among its measured programs.

    Args:
        kernels: of the model.
        others: what other models have measured.
    """

    def __init__(self, kernels: Sequence[Kernel], others: Sequence[Observation] = ()) -> None:
        self._kernels = kernels
        self._others = others
        self.tried = {kernel.task: [kernel.first] for kernel in kernels}

    def speed(self) -> float:
        """The model's speed with the fastest program of each kernel so far; 1 with the first programs."""
        fastest = [min(float(one.seconds[i]) for i in self.tried[one.task]) for one in self._kernels]
        return model_speed(self._kernels, fastest)

    def measure_any(self, orders: dict[str, list[int]]) -> None:
        """Take the measured time of one more program of each kernel, in the given orders."""
        for task, order in orders.items():
            if order:
                self.tried[task].append(order.pop())

    def measure_expected(self) -> None:
        """One more program of each kernel: the one of the largest expected improvement."""
        known = [*self._others, *self._observations()]
        processes = processes_of(known)
        for kernel in self._kernels:
            tried = self.tried[kernel.task]
            left = [i for i in range(len(kernel.programs)) if i not in tried]
            outlook = Outlook(predicted(processes, kernel, [*tried, *left]), range(len(tried)))
            tried += [left[one - len(tried)] for _, one, _ in most_promising([outlook], 1)]

    def _observations(self) -> list[Observation]:
        return [
            Observation(kernel.rule, kernel.programs[i], float(kernel.seconds[i]), kernel.model)
            for kernel in self._kernels
            for i in self.tried[kernel.task]
        ]


def processes_of(known: Sequence[Observation]) -> dict[str, RuleProcess]:
    """What observations teach, by rule."""
    rules = {one.rule for one in known}
    return {rule: RuleProcess([one for one in known if one.rule == rule]) for rule in rules}


def predicted(processes: dict[str, RuleProcess], kernel: Kernel, positions: Sequence[int]) -> Prediction:
    """The prediction of some of a kernel's programs; that of the estimate where nothing was learned."""
    programs = [kernel.programs[one] for one in positions]
    process = processes.get(kernel.rule)
    if process is not None:
        return process.predict(programs)
    points = Points.of(kernel.rule, programs, ())
    covariance = Similarity.between(points, points).covariance(Scales())
    return Prediction(np.log([one.estimate_s for one in programs]), covariance)


@dataclass(frozen=True)
class Division:
    """How trials are divided among kernels and programs.

    Attributes:
        chance: programs come in random order, each the best of some random ones by the estimate.
        across: the trials of a batch go to the programs that promise most, of whatever kernel; else the
            scheduler gives each kernel its trials.
        inside: whether kernels are measured inside of the model: the last trials measure again what would
            replace a first program then.
        free: whether, inside of the model, the first program of a kernel is no trial.
    """

    chance: bool
    across: bool
    inside: bool
    free: bool = True


class NoisyTuning:
    """The tuning of one model with recorded times as the truth, and noise in each measurement.

    As `host.tuning` does it, in batches.

    Args:
        kernels: of the model.
        division: of the trials.
        noise: standard deviation of a measurement, in logarithms.
        seed: of the noise and of chance.
    """

    def __init__(self, kernels: Sequence[Kernel], division: Division, noise: float, seed: int) -> None:
        self._kernels = kernels
        self._division = division
        self._noise = noise
        self._luck = np.random.default_rng(seed)
        self._chance = random.Random(seed)
        self._times: list[dict[int, list[float]]] = [defaultdict(list) for _ in kernels]
        self._again: set[tuple[int, int]] = set()
        self.trials = 0

    def run(self, trials: int, batch: int) -> float:
        """The model's true speed with the programs to take after so many trials; 1 with the first ones."""
        if self._division.inside and self._division.free:
            for number, kernel in enumerate(self._kernels):
                self._measure(number, kernel.first)
            self.trials = 0
        while self.trials < trials:
            left = trials - self.trials
            again = [pair for pair in map(self._unconfirmed, range(len(self._kernels))) if pair is not None]
            again = [pair for pair in again if pair not in self._again]
            chosen = [] if left <= len(again) else self._next(min(batch, left - len(again)))
            if not chosen:
                # Those that take longest come first.
                again.sort(key=lambda pair: -self._kernels[pair[0]].weight * self._mean_s(*pair))
                self._again.update(again[:left])
                chosen = again[:left]
            if not chosen:
                break
            for number, position in chosen:
                self._measure(number, position)
        chosen_s = [float(one.seconds[self._taken(number)]) for number, one in enumerate(self._kernels)]
        return model_speed(self._kernels, chosen_s)

    def _measure(self, number: int, position: int) -> None:
        luck = math.exp(self._noise * self._luck.standard_normal())
        self._times[number][position].append(float(self._kernels[number].seconds[position]) * luck)
        self.trials += 1

    def _mean_s(self, number: int, position: int) -> float:
        return float(np.mean(self._times[number][position]))

    def _taken(self, number: int) -> int:
        """The program to take, see `host.records.choice.best_program`."""
        known, first = self._times[number], self._kernels[number].first
        confirmed = [one for one in known if one == first or len(known[one]) > 1]
        usable = confirmed if any(len(one) > 1 for one in known.values()) else list(known)
        times = {one: self._mean_s(number, one) for one in usable}
        fastest = min(times.values(), default=math.inf)
        return next((one for one, seconds in times.items() if seconds <= CLOSE * fastest), first)

    def _unconfirmed(self, number: int) -> tuple[int, int] | None:
        """The program to measure again, see `host.records.choice.unconfirmed_program`."""
        known, first = self._times[number], self._kernels[number].first
        if first not in known or not self._division.inside:
            return None
        settled = [self._mean_s(number, one) for one in known if one == first or len(known[one]) > 1]
        fastest = min(known, key=lambda one: self._mean_s(number, one))
        once = len(known[fastest]) == 1 and fastest != first
        return (number, fastest) if once and min(settled) > CLOSE * self._mean_s(number, fastest) else None

    def _next(self, count: int) -> list[tuple[int, int]]:
        """Kernels and programs of the next batch."""
        processes = {} if self._division.chance else processes_of(self._observations())
        return self._across(processes, count) if self._division.across else self._scheduled(processes, count)

    def _observations(self) -> list[Observation]:
        return [
            Observation(kernel.rule, kernel.programs[position], seconds, kernel.model)
            for kernel, known in zip(self._kernels, self._times, strict=True)
            for position, times in known.items()
            for seconds in times
        ]

    def _left(self, number: int, without: Sequence[int] = ()) -> list[int]:
        kernel, known = self._kernels[number], self._times[number]
        some = list(range(len(kernel.programs)))
        if self._division.chance:
            some = [one for one in some if kernel.drawn_by[one] in CHANCE]
        return [one for one in some if one not in known and one not in without]

    def _across(self, processes: dict[str, RuleProcess], count: int) -> list[tuple[int, int]]:
        """As `host.tuning.proposers.bayesian.BayesianProposer.propose_across`."""
        positions, outlooks = [], []
        for number, kernel in enumerate(self._kernels):
            known = list(self._times[number]) or [kernel.first]
            positions.append([*known, *self._left(number, known)])
            prediction = predicted(processes, kernel, positions[-1])
            outlooks.append(Outlook(prediction, range(len(known)), weight=kernel.weight))
        unknown = {number for number, known in enumerate(self._times) if not known}
        found: list[tuple[int, int]] = []
        for number, position, _ in most_promising(outlooks, count, unknown):
            if number in unknown:
                unknown.remove(number)
                found.append((number, self._kernels[number].first))
            found.append((number, positions[number][position]))
        return found[:count]

    def _scheduled(self, processes: dict[str, RuleProcess], count: int) -> list[tuple[int, int]]:
        """As the scheduler divides the trials of several proposers, or of one that does not learn."""
        states = [
            TaskState(
                f"{number:06d}",
                float(kernel.weight),
                tuple(time for times in known.values() for time in times),
                estimate_s=kernel.programs[kernel.first].estimate_s,
            )
            for number, (kernel, known) in enumerate(zip(self._kernels, self._times, strict=True))
        ]
        found: list[tuple[int, int]] = []
        while states and len(found) < count:
            exhausted = set()
            for key, wanted in allocate_trials(states, count - len(found)).items():
                number = int(key)
                taken = [position for other, position in found if other == number]
                own = self._of_one(processes, number, taken, wanted)
                found += [(number, position) for position in own]
                if len(own) < wanted:
                    exhausted.add(key)
            states = [one for one in states if one.key not in exhausted]
            if not exhausted:
                break
        return found

    def _of_one(
        self, processes: dict[str, RuleProcess], number: int, taken: Sequence[int], count: int
    ) -> list[int]:
        """The next programs of one kernel."""
        kernel = self._kernels[number]
        known = [*self._times[number], *taken]
        begin = [] if known else [kernel.first]
        left = self._left(number, [*taken, *begin])
        count -= len(begin)
        if self._division.chance:
            return [*begin, *self._chance.sample(left, min(count, len(left)))]
        settled = [*known, *begin]
        outlook = Outlook(predicted(processes, kernel, [*settled, *left]), range(len(settled)))
        chosen = most_promising([outlook], count)
        return [*begin, *(left[one - len(settled)] for _, one, _ in chosen)]


# Who draws programs that are each the best of some random ones: inside of models, and on modelled boards.
CHANCE = (RANKED, "estimate")


def orders_of(kernels: Sequence[Kernel], arm: str, seed: int) -> dict[str, list[int]]:
    """The order of chance for each kernel, from the end."""
    generator = random.Random(f"{arm}/{seed}")
    found = {}
    for kernel in kernels:
        drawn = [
            i
            for i, who in enumerate(kernel.drawn_by)
            if i != kernel.first and (arm == "mixed" or who == RANKED)
        ]
        generator.shuffle(drawn)
        found[kernel.task] = drawn
    return found
