"""Gensor's first programs beside the best of random ones, by the same estimate.

    python -m benchmarks.construction --models resnet50 deit-small --targets x86_64-v4,jetson_orin_nano:gpu

Nothing is measured but the processor time of the construction. Each distinct task of the models, on each
target, has one ratio: the estimate of the best of the random programs over that of Gensor's, at most 1.
LINES gets a line for each task, and a later call with the same file goes on there.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.result_file import add_json_option, heading, write_result
from host.compile.device_profile import target_profile
from host.compile.processor import gpu_profile
from host.errors import ScheduleError
from host.gensor import Gensor
from host.importers import load
from host.lowering import lower
from host.model import DeviceProfile, ImportedModel
from host.options.numeric_types import half_of
from host.schedules import DesignSpace, space_for
from host.statistics import geometric_mean
from research.models.export import export

SCHEMA = "edgetlm.construction/1"
# Below this share of the best random program a construction counts as missed.
TARGET = 0.995


@dataclass(frozen=True)
class Construction:
    """One task.

    Attributes:
        task: the model's name and the task's.
        rule: that made its space.
        ratio: the best random program's estimate over Gensor's, at most 1.
        seconds: of the processor, to construct the program.
    """

    task: str
    rule: str
    ratio: float
    seconds: float


def constructed(space: DesignSpace, profile: DeviceProfile, name: str, count: int) -> Construction | None:
    """Gensor's program of a space beside the best of `count` random ones; None where nothing is to decide."""
    if all(len(decision.choices) == 1 for decision in space.decisions):
        return None
    start = time.process_time()
    [candidate] = Gensor().propose(space, profile, [], 1, seed=0)
    seconds = time.process_time() - start
    generator = random.Random(name)
    best = math.inf
    for _ in range(count):
        try:
            best = min(best, space.estimate_s(space.sample(generator)))
        except ScheduleError:
            break  # next to nothing is legal: what was drawn is all there is
    return Construction(name, space.rule.name, min(1.0, best / candidate.estimate_s), seconds)


def profile_named(target: str) -> tuple[DeviceProfile, str]:
    """The profile of a target, and the numeric type that its programs have: "NAME:gpu" computes in halves."""
    name, _, processor = target.partition(":")
    profile = target_profile(name, threads=1)
    return (gpu_profile(profile), "fp16") if processor == "gpu" else (profile, "fp32")


class Known:
    """What is done: tasks by target, and models whose tasks all are.

    Args:
        path: of the lines, appended to; None keeps them in memory alone.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._found: dict[tuple[str, str], Construction | None] = {}
        self._whole: dict[tuple[str, str, int], list[str]] = {}
        text = path.read_text() if path is not None and path.is_file() else ""
        for line in map(json.loads, text.splitlines()):
            if "model" in line:
                self._whole[line["target"], line["model"], line["each"]] = line["tasks"]
            else:
                found = line["found"]
                self._found[line["target"], line["task"]] = None if found is None else Construction(**found)

    def get(
        self, target: str, task: str, construct: Callable[[], Construction | None]
    ) -> Construction | None:
        """What was found for a task, constructed if need be; None where nothing is to decide."""
        if (target, task) not in self._found:
            found = self._found[target, task] = construct()
            self._append({"target": target, "task": task, "found": None if found is None else asdict(found)})
        return self._found[target, task]

    def finish(self, target: str, model: str, each: int, tasks: Sequence[str]) -> None:
        """Say that these are all tasks of a model on a target, with so many of each rule at most."""
        self._whole[target, model, each] = list(tasks)
        self._append({"target": target, "model": model, "each": each, "tasks": list(tasks)})

    def of(self, target: str, model: str, each: int) -> list[Construction] | None:
        """The tasks of a model on a target; None before `finish`."""
        tasks = self._whole.get((target, model, each))
        if tasks is None:
            return None
        return [one for task in tasks if (one := self._found[target, task]) is not None]

    def _append(self, line: Mapping[str, Any]) -> None:
        if self._path is not None:
            with self._path.open("a") as stream:
                stream.write(json.dumps(line) + "\n")


def constructions(
    model: ImportedModel, name: str, target: str, sizes: tuple[int, int], known: Known
) -> Iterator[Construction]:
    """The tasks of a model on a target that leave a choice.

    Args:
        model: imported.
        name: of the model.
        target: see `profile_named`.
        sizes: random programs of each task, and tasks of each rule at most.
        known: what was constructed before.
    """
    count, most = sizes
    profile, _ = profile_named(target)
    taken: Counter[str] = Counter()
    # By hash: an order that has nothing to do with what the tasks are.
    for space in sorted(spaces_of(model, target), key=lambda space: space.task.workload_hash):
        if taken[space.rule.name] < most:
            task = f"{name}/{space.task.name}"
            found = known.get(target, task, partial(constructed, space, profile, task, count))
            if found is not None:
                taken[space.rule.name] += 1
                yield found


def spaces_of(model: ImportedModel, target: str) -> Iterator[DesignSpace]:
    """The design spaces of a model's tasks on a target."""
    profile, dtype = profile_named(target)
    for task in lower(model, profile.board, half=half_of(dtype)).tasks:
        try:
            yield space_for(task, profile.hardware, profile.threads)
        except ScheduleError:
            continue


def summary(found: Sequence[Construction]) -> dict[str, Any]:
    """Figures of the tasks of one rule on one target."""
    least = min(found, key=lambda one: one.ratio)
    return {
        "tasks": len(found),
        "geometric_mean": geometric_mean([one.ratio for one in found]),
        "least": least.ratio,
        "least_task": least.task,
        "below_target": sum(one.ratio < TARGET for one in found),
        "mean_seconds": sum(one.seconds for one in found) / len(found),
        "most_seconds": max(one.seconds for one in found),
    }


def figures_of(found: Sequence[Construction]) -> Mapping[str, dict[str, Any]]:
    """The summaries of one target, by rule."""
    rules = sorted({one.rule for one in found})
    return {rule: summary([one for one in found if one.rule == rule]) for rule in rules}


def main() -> int:
    """Prints a line for each target and rule; 1 where a mean is below the target."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.construction", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--models", nargs="+", required=True, help="names of the zoo")
    parser.add_argument("--targets", required=True, help="NAME or NAME:gpu, with commas")
    parser.add_argument("--random", type=int, default=4096, help="random programs of each task")
    parser.add_argument("--each", type=int, default=1000, help="tasks of each rule of a model, at most")
    parser.add_argument("--lines", type=Path, help="a line for each task, read and appended to")
    add_json_option(parser)
    options = parser.parse_args()
    about = heading("benchmarks.construction", SCHEMA)
    known = Known(options.lines)
    names, each = options.targets.split(","), options.each
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models:
            missing = [target for target in names if known.of(target, name, each) is None]
            model = load(export(name, Path(folder), "onnx")) if missing else None
            for target in missing:
                assert model is not None
                made = constructions(model, name, target, (options.random, each), known)
                known.finish(target, name, each, [one.task for one in made])
    targets = {
        target: figures_of([one for name in options.models for one in known.of(target, name, each) or ()])
        for target in names
    }
    for target, by_rule in targets.items():
        for rule, figures in by_rule.items():
            print(f"{target} {rule}: {figures}", flush=True)
    write_result(options.json, about | {"random": options.random, "target": TARGET, "targets": targets})
    return int(any(one["geometric_mean"] < TARGET for each in targets.values() for one in each.values()))


if __name__ == "__main__":
    sys.exit(main())
