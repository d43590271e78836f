"""How trials are best divided among the kernels of a model.

    python -m benchmarks.measured_search.allocation --data FILE [--modelled FOLDER] [--noise X] [--json FILE]

FILE has programs that were measured inside of models (`python -m research.collection.in_model`), FOLDER those
of modelled boards, which are measured alone (`python -m research.modelled_boards`). Each model is tuned with
recorded times as the truth, times a noise in each measurement, in the batches of the product, and its
confirmations. Its speed is the true one, with the programs to take at the end, over that with the first ones.
Kernels with fewer than six different programs are left out, and models with fewer than three such kernels.
The arms:

    chance      random programs, each the best of some by the estimate; the scheduler gives trials to kernels
    before      the largest expected improvement of a kernel; the scheduler gives trials to kernels, and the
                first program of each kernel is a trial
    scheduled   as before, where the first programs are no trials
    across      the programs with the largest expected saving, of whatever kernel

The product is `across` inside of a model, and `scheduled` where kernels are measured alone.
Inside of a model, every job measures the first program of each kernel: it is no trial of any other arm.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.learned_estimate.withheld import Kernel, bounded, kernels_of, model_speed
from benchmarks.measured_search.replayed_tuning import Division, NoisyTuning
from benchmarks.modelled_boards.withheld import read_boards
from benchmarks.result_file import add_json_option, heading, write_result
from host.tuning.budget import Budget
from research.collection.dataset import read_programs

SCHEMA = "edgetlm.trial_allocation/1"
_LEAST_PROGRAMS, _LEAST_KERNELS = 6, 3
_ARMS = {
    "chance": Division(chance=True, across=False, inside=True),
    "before": Division(chance=False, across=False, inside=True, free=False),
    "scheduled": Division(chance=False, across=False, inside=True),
    "across": Division(chance=False, across=True, inside=True),
}
_PAIRS = (("across", "before"), ("across", "scheduled"), ("across", "chance"), ("scheduled", "chance"))


def models_of(kernels: Sequence[Kernel], board: str = "") -> dict[str, list[Kernel]]:
    """The models with enough kernels, by name."""
    found = defaultdict(list)
    for one in kernels:
        if len(one.programs) >= _LEAST_PROGRAMS:
            found[f"{board}/{one.model}" if board else one.model].append(one)
    return {name: own for name, own in sorted(found.items()) if len(own) >= _LEAST_KERNELS}


def speeds_of(
    kernels: Sequence[Kernel], inside: bool, trials: int, noise: float, seeds: int
) -> dict[str, float]:
    """The true speed of a model by arm, a geometric mean over seeds, and that with the fastest programs."""
    count = trials * len(kernels)
    batch = Budget(count, together=inside).batch_size
    found = {}
    for arm, division in _ARMS.items():
        own = replace(division, inside=inside)
        speeds = [NoisyTuning(kernels, own, noise, seed).run(count, batch) for seed in range(seeds)]
        found[arm] = math.exp(float(np.mean(np.log(speeds))))
    found["fastest"] = model_speed(kernels, [float(one.seconds.min()) for one in kernels])
    return found


def figures_of(models: dict[str, dict[str, float]]) -> dict[str, Any]:
    """Speeds and ratios of arms over models."""
    return {
        "models": models,
        "speed": {arm: bounded([one[arm] for one in models.values()]) for arm in (*_ARMS, "fastest")},
        "ratios": {f"{a}/{b}": bounded([one[a] / one[b] for one in models.values()]) for a, b in _PAIRS},
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Tunes each model with recorded times and prints the arms."""
    parser = argparse.ArgumentParser(prog="benchmarks.measured_search.allocation", description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--modelled", type=Path)
    parser.add_argument("--trials", type=int, nargs="+", default=[2, 4], help="of each kernel, in the mean")
    parser.add_argument("--noise", type=float, default=0.05, help="of a measurement, in logarithms")
    parser.add_argument("--seeds", type=int, default=8)
    add_json_option(parser)
    options = parser.parse_args(arguments)
    about = heading("benchmarks.measured_search.allocation", SCHEMA, arguments)
    sets = {"measured": (models_of(kernels_of(read_programs(options.data))), True)}
    if options.modelled is not None:
        boards = read_boards([options.modelled], [])
        alone = {
            name: own for board, (_, known) in boards.items() for name, own in models_of(known, board).items()
        }
        sets["modelled"] = alone, False
    found: dict[str, Any] = {"noise": options.noise, "seeds": options.seeds, "sets": {}}
    for name, (models, inside) in sets.items():
        by_trials = found["sets"][name] = {}
        for trials in options.trials:
            speeds = {
                model: speeds_of(own, inside, trials, options.noise, options.seeds)
                for model, own in models.items()
            }
            by_trials[str(trials)] = figures_of(speeds)
            for pair, one in by_trials[str(trials)]["ratios"].items():
                print(f"{name} {trials} {pair} {one['value']:.3f} ({one['low']:.3f} to {one['high']:.3f})")
            for arm, one in by_trials[str(trials)]["speed"].items():
                print(
                    f"{name} {trials} {arm} {one['value']:.3f} ({one['low']:.3f} to {one['high']:.3f})",
                    flush=True,
                )
    write_result(options.json, about | found)


if __name__ == "__main__":
    main()
