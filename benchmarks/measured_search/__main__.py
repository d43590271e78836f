"""Search with few measurements beside chance: `python -m benchmarks.measured_search`.

    python -m benchmarks.measured_search --data FILE [--seeds N] [--rounds N] [--json FILE]

FILE has programs that were measured inside of models (`python -m research.collection.in_model`). Each model
is tuned with recorded measurements: in every round, each of its kernels gets one more of its measured
programs, after the program that is constructed without measuring. The model's speed is its speed with the
fastest program of each kernel so far, over its speed with the first ones. Kernels with fewer than ten
measured programs are left out.
The arms:

    ranked         chance with the same ranker: programs that are each the best of 16 random ones, any order
    mixed          all programs in random order: ranked, constructed and random ones
    improvement    the largest expected improvement by the learned estimate, taught by the model's own times
    taught         the same, taught by the other models too, less those of this model's kernels
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.learned_estimate.withheld import (
    Kernel,
    bounded,
    kernels_of,
    model_speed,
    observations_of,
    training_observations,
)
from benchmarks.measured_search.replayed_tuning import (
    LEAST_PROGRAMS,
    TRAINING_PROGRAMS,
    ReplayedTuning,
    orders_of,
)
from benchmarks.result_file import add_json_option, heading, write_result
from host.learned_estimate.observation import Observation
from research.collection.dataset import read_programs

SCHEMA = "edgetlm.measured_search/1"
_ARMS = ("ranked", "mixed", "improvement", "taught")


def curve_of(
    kernels: Sequence[Kernel], arm: str, rounds: int, seed: int, others: Sequence[Observation]
) -> list[float]:
    """Speed of a model before and after each round."""
    tuning = ReplayedTuning(kernels, others if arm == "taught" else ())
    orders = orders_of(kernels, arm, seed)
    speeds = [tuning.speed()]
    for _ in range(rounds):
        if arm in ("ranked", "mixed"):
            tuning.measure_any(orders)
        else:
            tuning.measure_expected()
        speeds.append(tuning.speed())
    return speeds


def figures_of(
    kernels: Sequence[Kernel], known: Sequence[Observation], rounds: int, seeds: int
) -> dict[str, dict[str, list[float]]]:
    """Speeds of each model by arm; those of chance are geometric means over seeds."""
    found: dict[str, dict[str, list[float]]] = {}
    for model in sorted({kernel.model for kernel in kernels}):
        own = [one for one in kernels if one.model == model and len(one.programs) >= LEAST_PROGRAMS]
        if not own:
            continue
        others = training_observations(known, kernels, model)
        which = np.unique(np.linspace(0, len(others) - 1, TRAINING_PROGRAMS).astype(int))
        some = [others[i] for i in which]
        found[model] = {}
        for arm in _ARMS:
            # Without chance, every seed gives the same.
            count = seeds if arm in ("ranked", "mixed") else 1
            curves = [np.log(curve_of(own, arm, rounds, seed, some)) for seed in range(count)]
            found[model][arm] = [math.exp(x) for x in np.mean(curves, axis=0)]
        found[model]["fastest"] = [model_speed(own, [float(one.seconds.min()) for one in own])]
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Tunes each model with recorded measurements and prints the arms."""
    parser = argparse.ArgumentParser(prog="benchmarks.measured_search", description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=8)
    add_json_option(parser)
    options = parser.parse_args(arguments)
    about = heading("benchmarks.measured_search", SCHEMA, arguments)
    programs = list(read_programs(options.data))
    models = figures_of(kernels_of(programs), observations_of(programs), options.rounds, options.seeds)
    beside: dict[str, list[dict[str, Any]]] = {
        arm: [
            bounded([found[arm][number] / found["ranked"][number] for found in models.values()])
            for number in range(1, options.rounds + 1)
        ]
        for arm in _ARMS
    }
    speeds = {
        arm: [
            bounded([found[arm][number] for found in models.values()]) for number in range(options.rounds + 1)
        ]
        for arm in _ARMS
    }
    figures = {"rounds": options.rounds, "seeds": options.seeds, "models": models}
    for arm in _ARMS:
        print(arm, *(f"{one['value']:.3f}" for one in speeds[arm]))
        print("  over ranked", *(f"{x['value']:.3f} ({x['low']:.3f})" for x in beside[arm]))
    write_result(options.json, about | figures | {"speed": speeds, "over_ranked": beside})


if __name__ == "__main__":
    main()
