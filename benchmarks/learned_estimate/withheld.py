"""A model that teaches nothing: its kernels, what the others teach, and how fast the choices make it."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from host.errors import UserError
from host.learned_estimate.estimate import expected_choice
from host.learned_estimate.evidence import evidence_of
from host.learned_estimate.observation import EstimatedProgram, Observation
from host.learned_estimate.process import RuleProcess
from host.statistics import mean_of
from research.collection.dataset import MeasuredProgram

# A kernel with fewer measured programs leaves nothing to choose from.
_LEAST_PROGRAMS = 4
RANKED = "ranked16"


@dataclass(frozen=True, eq=False)
class Kernel:
    """The measured programs of one kernel of a model, each once.

    Attributes:
        model, task, rule: where it belongs.
        weight: calls in one run of the model.
        programs: with their estimates.
        seconds: mean of the measurements of each program.
        drawn_by: who drew each program.
        first: position of the one that is constructed without measuring.
    """

    model: str
    task: str
    rule: str
    weight: int
    programs: tuple[EstimatedProgram, ...]
    seconds: np.ndarray
    drawn_by: tuple[str, ...]
    first: int

    def speed(self, seconds: float) -> float:
        """Time of the first program over this one."""
        return float(self.seconds[self.first]) / seconds


def kernels_of(programs: Iterable[MeasuredProgram]) -> list[Kernel]:
    """The kernels of all models whose first program was measured."""
    by_kernel: dict[tuple[str, str], dict[object, list[MeasuredProgram]]] = defaultdict(dict)
    for one in programs:
        by_kernel[one.model, one.task].setdefault(one.decided, []).append(one)
    found = []
    for (model, task), known in by_kernel.items():
        groups = list(known.values())
        firsts = [number for number, same in enumerate(groups) if any(one.first for one in same)]
        if firsts:
            one = groups[0][0]
            found.append(
                Kernel(
                    model,
                    task,
                    one.rule,
                    one.weight,
                    tuple(EstimatedProgram(task, same[0].decisions, _estimated(same[0])) for same in groups),
                    np.array([np.mean([each.seconds for each in same]) for same in groups]),
                    tuple(same[0].origin for same in groups),
                    firsts[0],
                )
            )
    return found


def observations_of(programs: Iterable[MeasuredProgram]) -> list[Observation]:
    """All measurements, as the learned estimate takes them."""
    return [
        Observation(
            one.rule, EstimatedProgram(one.task, one.decisions, _estimated(one)), one.seconds, one.model
        )
        for one in programs
    ]


def _estimated(program: MeasuredProgram) -> Mapping[str, float]:
    if program.estimated_s is None:
        raise UserError("the data do not say what the programs were estimated to take; collect them again")
    return program.estimated_s


def shuffled(observations: Sequence[Observation], seed: int) -> list[Observation]:
    """The same with the ratios of measured to estimated time shuffled within each task."""
    generator = random.Random(seed)
    by_task: dict[str, list[int]] = defaultdict(list)
    for position, one in enumerate(observations):
        by_task[one.program.task].append(position)
    found = list(observations)
    for positions in by_task.values():
        others = generator.sample(positions, len(positions))
        for position, other in zip(positions, others, strict=True):
            ratio = observations[other].seconds / observations[other].program.estimate_s
            own = observations[position]
            found[position] = replace(own, seconds=ratio * own.program.estimate_s)
    return found


class LearnedEstimates:
    """The learned estimates of all rules, from the observations of other models."""

    def __init__(self, observations: Iterable[Observation]) -> None:
        by_rule: dict[str, list[Observation]] = defaultdict(list)
        for one in observations:
            by_rule[one.rule].append(one)
        self._processes = {rule: RuleProcess(known) for rule, known in by_rule.items()}
        self.evidence = {rule: evidence_of(process) for rule, process in self._processes.items()}

    def choice(self, kernel: Kernel, convinced: bool) -> int:
        """Position of the program to take; `convinced` asks for evidence."""
        process = self._processes.get(kernel.rule)
        if process is None or (convinced and not self.evidence[kernel.rule].convinces):
            return kernel.first
        return expected_choice(process.predict(kernel.programs), kernel.first)


def training_observations(
    observations: Sequence[Observation], kernels: Sequence[Kernel], model: str
) -> list[Observation]:
    """The observations to learn from when a model is withheld: none of its own, and none of its tasks."""
    held = {kernel.task for kernel in kernels if kernel.model == model}
    return [one for one in observations if one.model != model and one.program.task not in held]


def seconds_of(kernel: Kernel, arm: str, taught: LearnedEstimates) -> float:
    """Seconds of the program that an arm takes; of random ones the geometric mean."""
    if arm == "fastest":
        return float(kernel.seconds.min())
    if arm == "estimate":
        return float(kernel.seconds[np.argmin([one.estimate_s for one in kernel.programs])])
    if arm == "ranked":
        drawn = [time for time, who in zip(kernel.seconds, kernel.drawn_by, strict=True) if who == RANKED]
        return math.exp(float(np.mean(np.log(drawn)))) if drawn else float(kernel.seconds[kernel.first])
    return float(kernel.seconds[taught.choice(kernel, convinced=arm == "deployed")])


def model_speed(kernels: Sequence[Kernel], seconds: Sequence[float]) -> float:
    """Time of all kernels with their first programs over the time with other ones."""
    before = math.fsum(one.weight * float(one.seconds[one.first]) for one in kernels)
    return before / math.fsum(one.weight * time for one, time in zip(kernels, seconds, strict=True))


def bounded(values: Sequence[float]) -> dict[str, Any]:
    """A geometric mean with its 95% interval, the median and the least."""
    found = mean_of(values)
    ordered = sorted(values)
    return {
        "value": found.value,
        "low": found.low,
        "high": found.high,
        "median": ordered[len(ordered) // 2],
        "least": ordered[0],
        "n": found.n,
    }
