"""Trees beside the Gaussian process of the learned estimate: `python -m benchmarks.residual_trees`.

    python -m benchmarks.residual_trees --data FILE [--models NAME...] [--records N...] [--seeds N] [--json F]

FILE has programs that were measured inside of models (`python -m research.collection.in_model`). Each model
is withheld in turn. A few records of the others, less those of kernels that the withheld model has too,
teach. The models of the zoo are lowered for a board with AVX2, as the features of a program follow from its
kernel. Programs of other kernels than theirs are left out. Each arm chooses one of a kernel's measured
programs without their times:

    process         by the Gaussian process, cautiously
    process_mean    by the mean of the process, as the product does
    trees           by boosted trees with what the process knows of a program
    trees_half      the same with half of the correction
    features        trees with features of the program too, see `benchmarks.residual_trees.features`
    features_half   the same with half of the correction
    half_shuffled   as `features_half`, taught with times that are shuffled within each kernel
    chance          a random one: geometric mean over all
    fastest         the fastest

`over_estimate` is the time of the program with the least estimate over that of the arm's choice, by kernel, a
mean over seeds; above 1 the arm is faster. `over_process` is the same beside the process. The pool "all" has
all measured programs, "drawn" those that nobody constructed. The tiled rule alone is judged.
"""

from __future__ import annotations

import argparse
import math
import random
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.learned_estimate.withheld import (
    Kernel,
    bounded,
    kernels_of,
    observations_of,
    shuffled,
    training_observations,
)
from benchmarks.residual_trees.features import program_features
from benchmarks.residual_trees.trees import Describe, ResidualTrees
from benchmarks.result_file import add_json_option, heading, write_result
from host.learned_estimate.estimate import cautious_choice
from host.learned_estimate.observation import EstimatedProgram, Observation
from host.learned_estimate.process import Prediction, RuleProcess
from host.model import DeviceProfile
from research.collection.collect import tasks_in
from research.collection.dataset import current_programs
from targets import declared_boards

SCHEMA = "edgetlm.residual_trees/1"
_RULE, _CONSTRUCTED = "tiled", "gensor"
_LEAST_PROGRAMS = 4
ARMS = (
    "process",
    "process_mean",
    "trees",
    "trees_half",
    "features",
    "features_half",
    "half_shuffled",
    "chance",
    "fastest",
)
_BOARD = "x86_64-v3"
_MODELS = ("mobilenetv2", "efficientnet-b0", "bert-tiny", "vit-tiny", "swin-tiny", "lraspp-mobilenetv3")
Logs = dict[tuple[str, str], list[float]]


def chosen_logs(
    kernel: Kernel, which: np.ndarray, prediction: Prediction, corrections: Mapping[str, np.ndarray]
) -> dict[str, float]:
    """Logarithm of the time of the least estimate's program over that of each arm's.

    Args:
        kernel: with its measured programs.
        which: positions of those of the pool.
        prediction: of the process, of all programs.
        corrections: of the estimates, of all programs, by arm.
    """
    times = np.log(kernel.seconds[which])
    estimated = np.log([kernel.programs[one].estimate_s for one in which])
    first = int(np.argmin(estimated))
    of_pool = Prediction(prediction.mean[which], prediction.covariance[np.ix_(which, which)])
    chosen = {arm: int(np.argmin(estimated + added[which])) for arm, added in corrections.items()}
    chosen |= {"process": cautious_choice(of_pool, first), "process_mean": int(np.argmin(of_pool.mean))}
    chosen["fastest"] = int(np.argmin(times))
    found = {arm: float(times[first] - times[position]) for arm, position in chosen.items()}
    return {**found, "chance": float(times[first] - times.mean())}


class Descriptions:
    """Features of programs of the tasks of some models, each computed once.

    Args:
        models: files.
    """

    def __init__(self, models: Sequence[Path]) -> None:
        board = declared_boards()[_BOARD]
        self._hardware = board.hardware
        tasks = tasks_in(models, DeviceProfile(_BOARD, board, board.hardware, 1))
        self.workloads = {
            key: one.space.workload for key, one in tasks.items() if one.space.rule.name == _RULE
        }
        self._known: dict[tuple[object, ...], Mapping[str, float]] = {}

    def describe(self, program: EstimatedProgram) -> Mapping[str, float]:
        """The features of a program of one of the tasks."""
        key = (program.task, *program.values.items())
        if key not in self._known:
            workload = self.workloads[program.task]
            self._known[key] = program_features(workload, self._hardware, program.values)
        return self._known[key]


def exported(names: Sequence[str]) -> Descriptions:
    """The descriptions of models of the zoo."""
    from research.models.export import main as export

    with tempfile.TemporaryDirectory(prefix="edgetlm-") as folder:
        export([*names, "-o", folder, "--format", "onnx"])
        return Descriptions([Path(folder) / f"{name}.onnx" for name in names])


def withheld_logs(
    model: str,
    taught: Sequence[Observation],
    kernels: Sequence[Kernel],
    describe: Describe,
    seed: int,
    into: Mapping[str, Logs],
) -> None:
    """Add the logarithms of each arm for the kernels of a model that taught nothing.

    Args:
        model: that is withheld.
        taught: measured programs of other models.
        kernels: of all models.
        describe: features of programs.
        seed: of trees and shuffles.
        into: by arm, then by pool and kernel.
    """
    process = RuleProcess(taught)
    trees = {
        "trees": ResidualTrees(taught, seed),
        "features": ResidualTrees(taught, seed, describe),
        "half_shuffled": ResidualTrees(shuffled(taught, seed), seed, describe),
    }
    for kernel in kernels:
        if kernel.model != model:
            continue
        corrections = {arm: one.correction(kernel.programs) for arm, one in trees.items()}
        corrections["trees_half"] = 0.5 * corrections["trees"]
        corrections["features_half"] = 0.5 * corrections["features"]
        corrections["half_shuffled"] *= 0.5
        prediction = process.predict(kernel.programs)
        drawn = [number for number, who in enumerate(kernel.drawn_by) if who != _CONSTRUCTED]
        for pool, which in (("all", list(range(len(kernel.programs)))), ("drawn", drawn)):
            if len(which) >= _LEAST_PROGRAMS:
                logs = chosen_logs(kernel, np.array(which), prediction, corrections)
                for arm, log in logs.items():
                    into[arm][pool, f"{model}/{kernel.task}"].append(log)


def figures_of(logs: Mapping[str, Logs]) -> dict[str, dict[str, dict[str, Any]]]:
    """Ratios by pool and arm, each over the kernels: to the least estimate, and to the process."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for pool in ("all", "drawn"):
        keys = [key for key in logs["process"] if key[0] == pool]
        mean = {arm: {key: math.fsum(logs[arm][key]) / len(logs[arm][key]) for key in keys} for arm in ARMS}
        found[pool] = {
            arm: {
                "over_estimate": bounded([math.exp(mean[arm][key]) for key in keys]),
                "over_process": bounded([math.exp(mean[arm][key] - mean["process"][key]) for key in keys]),
            }
            for arm in ARMS
        }
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Withholds each model in turn and prints the ratios of every arm."""
    parser = argparse.ArgumentParser(prog="benchmarks.residual_trees", description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--models", nargs="+", default=list(_MODELS), help="names of the zoo")
    parser.add_argument("--records", type=int, nargs="+", default=[200, 50], help="that teach")
    parser.add_argument("--seeds", type=int, default=3)
    add_json_option(parser)
    options = parser.parse_args(arguments)
    about = heading("benchmarks.residual_trees", SCHEMA, arguments)
    described = exported(options.models)
    programs = [
        one for one in current_programs(options.data) if one.rule == _RULE and one.task in described.workloads
    ]
    observations, kernels = observations_of(programs), kernels_of(programs)
    models = sorted({kernel.model for kernel in kernels})
    by_records: dict[str, Any] = {}
    for count in options.records:
        logs: dict[str, Logs] = defaultdict(lambda: defaultdict(list))
        for seed in range(options.seeds):
            for model in models:
                known = training_observations(observations, kernels, model)
                taught = random.Random(f"{model}/{seed}").sample(known, min(count, len(known)))
                withheld_logs(model, taught, kernels, described.describe, seed, logs)
        by_records[str(count)] = figures_of(logs)
        figures = {"programs": len(programs), "kernels": len(kernels), "by_records": by_records}
        write_result(options.json, about | figures)
        for pool, arms in by_records[str(count)].items():
            for arm, ratios in arms.items():
                print(
                    count, pool, arm, *(f"{name} {_shown(one)}" for name, one in ratios.items()), flush=True
                )


def _shown(one: Mapping[str, Any]) -> str:
    return (
        f"{one['value']:.3f} ({one['low']:.3f} to {one['high']:.3f}) median {one['median']:.3f} n {one['n']}"
    )


if __name__ == "__main__":
    main()
