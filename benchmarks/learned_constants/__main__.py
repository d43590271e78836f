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
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.learned_constants.figures import summary
from benchmarks.result_file import add_json_option, heading, write_result
from host.compile.device_profile import profile_of
from host.errors import UserError
from host.transport import connect
from research.collection.collect import SWEEP, BenchTimer, CollectedTask, Collector, tasks_in
from research.collection.dataset import MeasuredProgram, is_compressed, read_programs
from research.estimate.withheld import MeasuredTask, TaskScore, scores_of_withheld
from research.evaluation.bench import MeasurePlan, open_bench

SCHEMA = "edgetlm.learned_constants/2"
_MODELS = ("mobilenetv2", "resnet50", "bert-tiny", "vit-tiny", "swin-tiny", "efficientnet-b0", "aspp")
_LEAST_PROGRAMS, _FOLDS = 8, 5


def measure(models: Sequence[str], path: Path, sweeps: int, minutes: float) -> dict[str, CollectedTask]:
    """Add programs of the models' tasks to the file; returns the tasks."""
    from research.models.export import main as export

    with tempfile.TemporaryDirectory(prefix="edgetlm-") as folder, connect("local") as device:
        export([*models, "-o", folder, "--format", "onnx"])
        profile = profile_of(device, 1)
        tasks = tasks_in([Path(folder) / f"{name}.onnx" for name in models], profile)
        with open_bench(device, profile, Path(folder), MeasurePlan()) as bench:
            collector = Collector(BenchTimer(bench), profile, tasks, path, print)
            collector.run(sweeps, time.monotonic() + 60.0 * minutes)
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
