"""A tuning that takes its measurements from recorded programs."""

from __future__ import annotations

import random
from collections.abc import Sequence

from benchmarks.learned_estimate.withheld import (
    RANKED,
    Kernel,
    model_speed,
)
from host.learned_estimate.improvement import expected_improvement
from host.learned_estimate.observation import Observation
from host.learned_estimate.process import RuleProcess

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
        rules = {kernel.rule for kernel in self._kernels}
        processes = {rule: RuleProcess([one for one in known if one.rule == rule]) for rule in rules}
        for kernel in self._kernels:
            tried = self.tried[kernel.task]
            left = [i for i in range(len(kernel.programs)) if i not in tried]
            if left:
                prediction = processes[kernel.rule].predict([kernel.programs[i] for i in left])
                best_s = min(float(kernel.seconds[i]) for i in tried)
                tried.append(left[expected_improvement(prediction, best_s, 1)[0]])

    def _observations(self) -> list[Observation]:
        return [
            Observation(kernel.rule, kernel.programs[i], float(kernel.seconds[i]), kernel.model)
            for kernel in self._kernels
            for i in self.tried[kernel.task]
        ]


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
