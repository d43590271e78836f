"""What measured programs teach the constants of the estimates: `python -m benchmarks.learned_constants`.

    python -m benchmarks.learned_constants [--models NAME...] [--minutes N] [--data DATA] [--json FILE]

Programs of the models' tasks are measured on the local processor, one thread. Every task is estimated with
constants learned from the tasks of other folds. DATA keeps the measured programs; what it has is not measured
again. Order is Spearman's correlation within a task. Regret is the time of the program that the estimate
takes for the fastest, over that of the fastest measured one of the task.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.result_file import add_json_option, heading, write_result
from host.compile.device_profile import profile_of
from host.transport import connect
from research.collection.collect import CollectedTask, Collector, tasks_in
from research.collection.dataset import read_programs
from research.estimate.constants_fit import Observation
from research.estimate.withheld import TaskScore, scores_of_withheld
from research.evaluation.bench import MeasurePlan, open_bench

SCHEMA = "edgetlm.learned_constants/1"
_MODELS = ("mobilenetv2", "resnet50", "bert-tiny", "vit-tiny", "swin-tiny", "efficientnet-b0", "aspp")
_LEAST_PROGRAMS, _FOLDS = 8, 5
# Two-sided 95% of a normal distribution: there are dozens of tasks.
_Z = 1.96


def measure(models: Sequence[str], path: Path, sweeps: int, minutes: float) -> dict[str, CollectedTask]:
    """Add programs of the models' tasks to the file; returns the tasks."""
    from tests.models.export import main as export

    with tempfile.TemporaryDirectory(prefix="edgetlm-") as folder, connect("local") as device:
        export([*models, "-o", folder, "--format", "onnx"])
        profile = profile_of(device, 1)
        tasks = tasks_in([Path(folder) / f"{name}.onnx" for name in models], profile)
        with open_bench(device, profile, Path(folder), MeasurePlan()) as bench:
            Collector(bench, tasks, path, print).run(sweeps, time.monotonic() + 60.0 * minutes)
    return tasks


def observations_of(path: Path, tasks: dict[str, CollectedTask]) -> dict[str, list[Observation]]:
    """The measured programs of the present version of each task's rule, by task."""
    found: dict[str, list[Observation]] = defaultdict(list)
    for one in read_programs(path):
        task = tasks.get(one.task)
        if task is not None and (task.space.rule.name, task.space.rule.version) == (one.rule, one.version):
            found[one.task].append(Observation(task.space, one.decisions, one.seconds))
    return {key: programs for key, programs in found.items() if len(programs) >= _LEAST_PROGRAMS}


def summary(pairs: Sequence[tuple[TaskScore, TaskScore]]) -> dict[str, Any]:
    """Means over tasks before and after, and the ratio of regrets with its 95% interval."""
    gains = np.array([math.log(before.regret / after.regret) for before, after in pairs])
    error = _Z * float(gains.std(ddof=1)) / math.sqrt(len(gains)) if len(gains) > 1 else math.inf
    mean = float(gains.mean())

    def means(scores: Sequence[TaskScore]) -> dict[str, float]:
        return {
            "order": round(float(np.nanmean([one.order for one in scores])), 3),
            "spread": round(float(np.mean([one.spread for one in scores])), 3),
            "regret": round(math.exp(float(np.mean([math.log(one.regret) for one in scores]))), 4),
            "worst_regret": round(max(one.regret for one in scores), 3),
        }

    return {
        "tasks": len(pairs),
        "programs": sum(before.programs for before, _ in pairs),
        "before": means([before for before, _ in pairs]),
        "after": means([after for _, after in pairs]),
        "speed_of_first": round(math.exp(mean), 4),
        "low": round(math.exp(mean - error), 4) if math.isfinite(error) else None,
        "high": round(math.exp(mean + error), 4) if math.isfinite(error) else None,
    }


def main() -> None:
    """Measures, learns and prints the summary by rule."""
    parser = argparse.ArgumentParser(prog="benchmarks.learned_constants", description=__doc__)
    parser.add_argument("--models", nargs="+", default=list(_MODELS), help="names of the zoo")
    parser.add_argument("--minutes", type=float, default=20.0, help="of measuring, at most")
    parser.add_argument("--sweeps", type=int, default=4, help="of 24 programs a task, at most")
    parser.add_argument("--data", type=Path, help="file of the measured programs")
    add_json_option(parser)
    options = parser.parse_args()
    about = heading("benchmarks.learned_constants", SCHEMA)
    with tempfile.TemporaryDirectory(prefix="edgetlm-") as folder:
        path = options.data or Path(folder) / "programs.jsonl"
        tasks = measure(options.models, path, options.sweeps, options.minutes)
        pairs = scores_of_withheld(observations_of(path, tasks), _FOLDS, note=print)
    by_rule: dict[str, list[tuple[TaskScore, TaskScore]]] = defaultdict(list)
    for pair in pairs:
        by_rule[pair[0].rule].append(pair)
    figures = {
        "models": options.models,
        "all": summary(pairs),
        "rules": {rule: summary(found) for rule, found in sorted(by_rule.items())},
    }
    print(json.dumps(figures, indent=1))
    write_result(options.json, about | figures)


if __name__ == "__main__":
    main()
