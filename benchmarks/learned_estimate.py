"""What a board's measurements do for networks that taught nothing: `python -m benchmarks.learned_estimate`.

    python -m benchmarks.learned_estimate --data FILE [--shuffles N] [--json FILE]

FILE has programs that were measured inside of models (`python -m research.collection.in_model`). Each model
is withheld in turn. The learned estimate sees the programs of the others, less those of kernels that the
withheld model has too. Of each of its kernels it chooses one measured program, without their times:

    learned   the choice of the learned estimate, whatever the evidence
    deployed  the same where the evidence of the rule convinces, as `sdk deploy` does; else the first program
    shuffled  as `deployed`, taught with times that are shuffled within each kernel (three of the shuffles)
    estimate  the least estimate, without anything that was learned
    ranked    chance with the same ranker: a random one of those that are the best of 16 random programs each
    fastest   the fastest measured program

`speed` of a model is the time of its kernels with the programs that are constructed without measuring, over
the time with the chosen ones, each kernel as often as the model calls it. `curve` has `learned` and
`deployed` by the number of measured programs that taught, drawn evenly from all.
"""

from __future__ import annotations

import argparse
import math
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.result_file import add_json_option, heading, write_result
from host.errors import UserError
from host.learned_estimate.estimate import cautious_choice
from host.learned_estimate.evidence import Evidence, evidence_of
from host.learned_estimate.observation import EstimatedProgram, Observation
from host.learned_estimate.process import RuleProcess
from host.statistics import MIN_TRIALS, mean_of
from research.collection.dataset import MeasuredProgram, read_programs

SCHEMA = "edgetlm.learned_estimate/1"
_ARMS = ("learned", "deployed", "estimate", "ranked", "fastest")
_CURVE = (10, 50, 200, 1000)
# A kernel with fewer measured programs leaves nothing to choose from.
_LEAST_PROGRAMS = 4
# Of the shuffles, those for which each model is withheld in turn.
_WITHHELD_SHUFFLES = 3
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
        decisions = tuple(one.decisions.items())
        by_kernel[one.model, one.task].setdefault(decisions, []).append(one)
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


class Taught:
    """What observations teach, by rule."""

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
        return cautious_choice(process.predict(kernel.programs), kernel.first)


def teachers(observations: Sequence[Observation], kernels: Sequence[Kernel], model: str) -> list[Observation]:
    """What may teach when a model is withheld."""
    held = {kernel.task for kernel in kernels if kernel.model == model}
    return [one for one in observations if one.model != model and one.program.task not in held]


def seconds_of(kernel: Kernel, arm: str, taught: Taught) -> float:
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


def withheld_figures(
    observations: Sequence[Observation], kernels: Sequence[Kernel], arms: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Each arm's figures: by model, over models, and over the kernels that leave a choice."""
    models = sorted({kernel.model for kernel in kernels})
    by_model: dict[str, dict[str, float]] = {arm: {} for arm in arms}
    by_kernel: dict[str, list[float]] = {arm: [] for arm in arms}
    for model in models:
        own = [kernel for kernel in kernels if kernel.model == model]
        taught = Taught(teachers(observations, kernels, model))
        for arm in arms:
            seconds = [seconds_of(kernel, arm, taught) for kernel in own]
            by_model[arm][model] = model_speed(own, seconds)
            by_kernel[arm] += [
                kernel.speed(time)
                for kernel, time in zip(own, seconds, strict=True)
                if len(kernel.programs) >= _LEAST_PROGRAMS
            ]
    return {
        arm: {
            "models": by_model[arm],
            "over_models": bounded(list(by_model[arm].values())),
            "over_kernels": bounded(by_kernel[arm]),
        }
        for arm in arms
    }


def shuffled_figures(
    observations: Sequence[Observation], kernels: Sequence[Kernel], count: int
) -> dict[str, Any]:
    """What shuffled times do, and how often the evidence of a rule refuses them."""
    speeds, refused, judged = [], 0, 0
    for seed in range(count):
        mixed = shuffled(observations, seed)
        for evidence in Taught(mixed).evidence.values():
            if evidence.speed.n >= MIN_TRIALS:
                judged += 1
                refused += not evidence.convinces
        if seed < _WITHHELD_SHUFFLES:
            found = withheld_figures(mixed, kernels, ("deployed",))
            speeds += list(found["deployed"]["models"].values())
    return {"deployed": bounded(speeds), "refused": refused, "judged": judged, "shuffles": count}


def curve(observations: Sequence[Observation], kernels: Sequence[Kernel]) -> dict[str, Any]:
    """Speed over models by the number of programs that taught."""
    found = {}
    for count in _CURVE:
        if count < len(observations):
            some = random.Random(count).sample(range(len(observations)), count)
            few = [observations[position] for position in sorted(some)]
            figures = withheld_figures(few, kernels, ("learned", "deployed"))
            found[str(count)] = {arm: one["over_models"] for arm, one in figures.items()}
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Withholds each model in turn and prints what the others taught."""
    parser = argparse.ArgumentParser(prog="benchmarks.learned_estimate", description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--shuffles", type=int, default=40)
    add_json_option(parser)
    options = parser.parse_args(arguments)
    about = heading("benchmarks.learned_estimate", SCHEMA, arguments)
    programs = list(read_programs(options.data))
    observations, kernels = observations_of(programs), kernels_of(programs)
    if len({kernel.model for kernel in kernels}) < MIN_TRIALS:
        raise UserError(f"{options.data} has programs of too few models; collect from {MIN_TRIALS} at least")
    figures = withheld_figures(observations, kernels, _ARMS)
    everything = Taught(observations)
    found = {
        "programs": len(programs),
        "kernels": len(kernels),
        "arms": figures,
        "curve": curve(observations, kernels),
        "shuffled": shuffled_figures(observations, kernels, options.shuffles),
        "evidence": {
            rule: {"speed": bounded_estimate(one), "programs": one.programs, "convinces": one.convinces}
            for rule, one in everything.evidence.items()
        },
    }
    for arm, one in figures.items():
        print(arm, {name: round(speed, 3) for name, speed in one["models"].items()}, one["over_models"])
    print("curve", found["curve"])
    print("shuffled", found["shuffled"])
    print("evidence", found["evidence"])
    write_result(options.json, about | found)


def bounded_estimate(evidence: Evidence) -> dict[str, Any]:
    """The speed of an evidence as plain data."""
    speed = evidence.speed
    return {"value": speed.value, "low": speed.low, "high": speed.high, "tasks": speed.n}


if __name__ == "__main__":
    main()
