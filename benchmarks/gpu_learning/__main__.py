"""What a GPU's records add on its other networks: `python -m benchmarks.gpu_learning --data FILE [--json F]`.

FILE has measured programs of a GPU (`collected`). Each network is withheld in turn; some records of the
others, less those of tasks that the withheld one has too, teach the learned estimate T_hat of each rule. Each
arm chooses one of a task's measured programs without their times:

    t               the least estimate
    process         by T_hat, cautiously
    process_mean    by its mean, as the product chooses
    process_shuffled, process_mean_shuffled     the same, taught with times shuffled within each task
    chance          a random one: geometric mean over all
    fastest         the fastest

`speed` is the time of the choice of t over that of the arm's, and `regret` the time of the arm's choice over
that of the fastest, by task, a mean over seeds of the shuffles. The pool "all" has all programs, "drawn"
those that Gensor has not constructed. `order` is Spearman's correlation with time within a task, by T and by
T_hat. Nothing is timed here.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
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
    training_observations,
)
from benchmarks.modelled_boards.withheld import Logs, board_logs
from benchmarks.result_file import add_json_option, heading, write_result
from host.learned_estimate.observation import Observation
from host.learned_estimate.process import RuleProcess
from research.collection.dataset import current_programs
from research.estimate.withheld import spearman

SCHEMA = "edgetlm.gpu_learning/1"
ARMS = ("process", "process_mean", "process_shuffled", "process_mean_shuffled", "chance", "fastest")
_T = "t"
# Correlations of fewer programs say little.
_LEAST_ORDERED = 6


def speeds(logs: Logs, rule_of: Mapping[str, str], pool: str, rule: str = "") -> dict[str, Any]:
    """Speed and regret of each arm over the tasks of a pool, of one rule or of all; {} without any."""
    means: dict[str, list[float]] = {_T: []}
    for key in logs["fastest"]:
        if key[0] != pool or (rule and rule_of[key[1]] != rule):
            continue
        means[_T].append(0.0)
        for arm in ARMS:
            means.setdefault(arm, []).append(statistics.fmean(logs[arm][key]))
    if not means[_T]:
        return {}
    return {
        arm: {
            "speed": bounded([math.exp(log) for log in found]),
            "regret": bounded(
                [math.exp(best - log) for log, best in zip(found, means["fastest"], strict=True)]
            ),
        }
        for arm, found in means.items()
    }


def orders(
    observations: Sequence[Observation], kernels: Sequence[Kernel], records: int
) -> dict[str, dict[str, Any]]:
    """Spearman's correlation within tasks before and after learning from the other networks, by rule."""
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for model in sorted({kernel.model for kernel in kernels}):
        by_rule: dict[str, list[Observation]] = defaultdict(list)
        known = training_observations(observations, kernels, model)
        for one in random.Random(model).sample(known, min(records, len(known))):
            by_rule[one.rule].append(one)
        processes = {rule: RuleProcess(known) for rule, known in by_rule.items()}
        for kernel in kernels:
            if kernel.model != model or kernel.rule not in processes:
                continue
            if len(kernel.programs) < _LEAST_ORDERED:
                continue
            estimates = np.array([one.estimate_s for one in kernel.programs])
            learned = processes[kernel.rule].predict(kernel.programs).mean
            pair = spearman(estimates, kernel.seconds), spearman(learned, kernel.seconds)
            if not any(map(math.isnan, pair)):
                found[kernel.rule].append(pair)
    found["all"] = [pair for pairs in list(found.values()) for pair in pairs]
    return {
        rule: {
            "tasks": len(pairs),
            "t": {"mean": statistics.fmean(before), "median": statistics.median(before)},
            "t_hat": {"mean": statistics.fmean(after), "median": statistics.median(after)},
        }
        for rule, pairs in sorted(found.items())
        if pairs
        for before, after in [tuple(zip(*pairs, strict=True))]
    }


def figures_of(
    observations: Sequence[Observation], kernels: Sequence[Kernel], records: int, seeds: int
) -> dict[str, Any]:
    """All figures, taught by so many records."""
    logs: Logs = defaultdict(lambda: defaultdict(list))
    for seed in range(seeds):
        board_logs("gpu", observations, kernels, records, seed, logs)
    rule_of = {f"gpu/{one.model}/{one.task}": one.rule for one in kernels}
    return {
        "pools": {pool: speeds(logs, rule_of, pool) for pool in ("all", "drawn")},
        "rules": {rule: speeds(logs, rule_of, "all", rule) for rule in sorted(set(rule_of.values()))},
        "order": orders(observations, kernels, records),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Withholds each network and prints the figures of every arm."""
    parser = argparse.ArgumentParser(prog="benchmarks.gpu_learning", description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--records", type=int, nargs="+", default=[400, 1200], help="that teach")
    parser.add_argument("--seeds", type=int, default=3, help="of the records and of the shuffles")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    about = heading("benchmarks.gpu_learning", SCHEMA, arguments)
    programs = current_programs(options.data)
    observations, kernels = observations_of(programs), kernels_of(programs)
    figures: dict[str, Any] = {
        "seeds": options.seeds,
        "networks": sorted({one.model for one in kernels}),
        "programs": len(programs),
        "tasks": len(kernels),
        "by_records": {},
    }
    for records in options.records:
        found = figures_of(observations, kernels, records, options.seeds)
        figures["by_records"][str(records)] = found
        write_result(options.json, about | figures)
        for pool, arms in found["pools"].items():
            for arm, one in arms.items():
                told = [
                    f"{kind} {one[kind]['value']:.3f} ({one[kind]['low']:.3f} to {one[kind]['high']:.3f})"
                    for kind in ("speed", "regret")
                ]
                print(records, pool, arm, *told, f"n {one['speed']['n']}")
        for rule, one in found["order"].items():
            print(records, f"order {rule} {one['t']['mean']:.3f} {one['t_hat']['mean']:.3f} n {one['tasks']}")


if __name__ == "__main__":
    main()
