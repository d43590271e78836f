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
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.learned_estimate.withheld import (
    _LEAST_PROGRAMS,
    Kernel,
    LearnedEstimates,
    bounded,
    kernels_of,
    model_speed,
    observations_of,
    seconds_of,
    shuffled,
    training_observations,
)
from benchmarks.result_file import add_json_option, heading, write_result
from host.errors import UserError
from host.learned_estimate.evidence import Evidence
from host.learned_estimate.observation import Observation
from host.statistics import MIN_TRIALS
from research.collection.dataset import read_programs

SCHEMA = "edgetlm.learned_estimate/1"
ARMS = ("learned", "deployed", "estimate", "ranked", "fastest")
_CURVE = (10, 50, 200, 1000)
# Of the shuffles, those for which each model is withheld in turn.
_WITHHELD_SHUFFLES = 3


def withheld_figures(
    observations: Sequence[Observation], kernels: Sequence[Kernel], arms: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Each arm's figures: by model, over models, and over the kernels that leave a choice."""
    models = sorted({kernel.model for kernel in kernels})
    by_model: dict[str, dict[str, float]] = {arm: {} for arm in arms}
    by_kernel: dict[str, list[float]] = {arm: [] for arm in arms}
    for model in models:
        own = [kernel for kernel in kernels if kernel.model == model]
        taught = LearnedEstimates(training_observations(observations, kernels, model))
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
        for evidence in LearnedEstimates(mixed).evidence.values():
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
    figures = withheld_figures(observations, kernels, ARMS)
    everything = LearnedEstimates(observations)
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
