"""What measured programs teach the constants of the estimates: `python -m benchmarks.learned_constants`.

    python -m benchmarks.learned_constants [--models NAME...] [--minutes N] [--data DATA] [--json FILE]

Programs of the models' tasks are measured on the local processor, one thread. Every task is estimated with
constants learned from the tasks of other folds. DATA keeps the measured programs; what it has is not measured
again. Order is Spearman's correlation within a task, spread the standard deviation of measured over estimated
time in logarithms. A way of choosing one of a task's programs costs that program's time over the time of the
fastest one; the fastest is chosen by one half of the rounds, and times are those of the other half
(`research/estimate/choices.py`).
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.result_file import add_json_option, heading, write_result
from host.compile.device_profile import profile_of
from host.errors import UserError
from host.statistics import MIN_TRIALS, t975
from host.transport import connect
from research.collection.collect import SWEEP, CollectedTask, Collector, tasks_in
from research.collection.dataset import MeasuredProgram, is_compressed, read_programs
from research.estimate.withheld import MeasuredTask, TaskScore, scores_of_withheld
from research.evaluation.bench import MeasurePlan, open_bench

SCHEMA = "edgetlm.learned_constants/2"
_MODELS = ("mobilenetv2", "resnet50", "bert-tiny", "vit-tiny", "swin-tiny", "efficientnet-b0", "aspp")
_LEAST_PROGRAMS, _FOLDS = 8, 5


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


def measured_tasks(path: Path, tasks: Mapping[str, CollectedTask]) -> dict[str, MeasuredTask]:
    """The tasks with enough measured programs of the present version of their rule.

    Raises:
        UserError: there are none.
    """
    found: dict[str, list[MeasuredProgram]] = defaultdict(list)
    for one in read_programs(path):
        task = tasks.get(one.task)
        if task is not None and (task.space.rule.name, task.space.rule.version) == (one.rule, one.version):
            found[one.task].append(one)
    measured = {
        key: MeasuredTask(tasks[key].space, programs, len(programs) >= SWEEP)
        for key, programs in found.items()
        if len(programs) >= _LEAST_PROGRAMS
    }
    if not measured:
        raise UserError(
            f"{path} has no {_LEAST_PROGRAMS} programs of any task of these models on this processor: "
            "measure some with --minutes 20"
        )
    return measured


def _figure(values: Iterable[float]) -> dict[str, float | None]:
    """Mean with its 95% interval by Student, median and largest of a figure over tasks.

    A figure that some tasks do not have (NaN) is that of the others.
    """
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return dict.fromkeys(("mean", "low", "high", "median", "most"))
    mean, half = statistics.fmean(known), math.inf
    if len(known) >= MIN_TRIALS:
        half = t975(len(known) - 1) * statistics.stdev(known) / math.sqrt(len(known))
    return {
        "mean": mean,
        "low": mean - half if math.isfinite(half) else None,
        "high": mean + half if math.isfinite(half) else None,
        "median": statistics.median(known),
        "most": max(known),
    }


def _rounded(figure: Mapping[str, float | None], digits: int = 3) -> dict[str, float | None]:
    return {name: None if value is None else round(value, digits) for name, value in figure.items()}


def _times(logs: Iterable[float]) -> dict[str, float | None]:
    """The same of factors, from their logarithms."""
    figure = _figure(logs)
    return _rounded({name: None if log is None else math.exp(log) for name, log in figure.items()}, 4)


def summary(pairs: Sequence[tuple[TaskScore, TaskScore]]) -> dict[str, Any]:
    """Figures over tasks before and after learning.

    Args:
        pairs: the scores of each task, before and after.

    Returns:
        Order and spread, and by the way of choosing the time of the program over that of the fastest, and how
        much faster the program is after learning.
    """
    sides = {"before": [before for before, _ in pairs], "after": [after for _, after in pairs]}
    ways = {
        way: [
            (before.log_costs[way], after.log_costs[way])
            for before, after in pairs
            if way in before.log_costs
        ]
        for way in dict.fromkeys(way for before, _ in pairs for way in before.log_costs)
    }
    return {
        "tasks": len(pairs),
        "programs": sum(before.programs for before, _ in pairs),
        "order": {side: _rounded(_figure(one.order for one in found)) for side, found in sides.items()},
        "spread": {side: _rounded(_figure(one.spread for one in found)) for side, found in sides.items()},
        "ways": {
            way: {
                "tasks": len(costs),
                "before": _times(before for before, _ in costs),
                "after": _times(after for _, after in costs),
                "speed": _times(before - after for before, after in costs),
            }
            for way, costs in ways.items()
        },
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
    if options.data and is_compressed(options.data) and options.minutes > 0:
        parser.error(f"{options.data} is compressed, and nothing can be added to it: give --minutes 0")
    about = heading("benchmarks.learned_constants", SCHEMA)
    with tempfile.TemporaryDirectory(prefix="edgetlm-") as folder:
        path = options.data or Path(folder) / "programs.jsonl"
        tasks = measure(options.models, path, options.sweeps, options.minutes)
        pairs = scores_of_withheld(measured_tasks(path, tasks), _FOLDS, note=print)
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
