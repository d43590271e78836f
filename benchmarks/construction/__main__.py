"""Gensor's first programs beside the best of random ones, by the same estimate.

    python -m benchmarks.construction --models resnet50 deit-small --targets x86_64-v4,jetson_orin_nano:gpu

Nothing is measured but the processor time of the construction. Each distinct task of the models, on each
target, has one ratio: the estimate of the best of the random programs over that of Gensor's, at most 1.
The file has an entry for each model on each target, with the commit that made it, written as soon as its
tasks are done. What is in the file already is not done again: the same command goes on where it was stopped.
LINES gets a line for each task, and a later call of the same commit goes on there within a model.
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

from benchmarks.result_file import add_json_option, heading, read_result, write_result
from host.compile.device_profile import target_profile
from host.compile.processor import gpu_profile
from host.errors import ScheduleError, UserError
from host.gensor import Gensor
from host.importers import load
from host.lowering import lower
from host.model import DeviceProfile, ImportedModel
from host.options.numeric_types import half_of
from host.schedules import DesignSpace, space_for
from host.statistics import geometric_mean
from research.models.export import export

SCHEMA = "edgetlm.construction/2"
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
    """The tasks that are done, by target.

    Args:
        path: of the lines, appended to; None keeps them in memory alone.
        commit: of the working tree; lines of others are left alone.
    """

    def __init__(self, path: Path | None, commit: str | None) -> None:
        self._path, self._commit = path, commit
        self._found: dict[tuple[str, str], Construction | None] = {}
        text = path.read_text() if path is not None and path.is_file() else ""
        for line in map(json.loads, text.splitlines()):
            if line["commit"] == commit:
                found = line["found"]
                self._found[line["target"], line["task"]] = None if found is None else Construction(**found)

    def get(
        self, target: str, task: str, construct: Callable[[], Construction | None]
    ) -> Construction | None:
        """What was found for a task, constructed if need be; None where nothing is to decide."""
        if (target, task) not in self._found:
            found = self._found[target, task] = construct()
            made = None if found is None else asdict(found)
            self._append({"commit": self._commit, "target": target, "task": task, "found": made})
        return self._found[target, task]

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


def entries_of(path: Path | None) -> list[dict[str, Any]]:
    """The entries that a result file has; none where there is no file.

    Raises:
        UserError: it holds other figures.
    """
    if path is None or not path.exists():
        return []
    found = read_result(path)
    if found.schema != SCHEMA:
        raise UserError(f"{path} holds other figures; give --json another name")
    return list(found.figures["entries"])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks.construction", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--models", nargs="+", required=True, help="names of the zoo")
    parser.add_argument("--targets", required=True, help="NAME or NAME:gpu, with commas")
    parser.add_argument("--random", type=int, default=4096, help="random programs of each task")
    parser.add_argument("--each", type=int, default=1000, help="tasks of each rule of a model, at most")
    parser.add_argument("--lines", type=Path, help="a line for each task, read and appended to")
    add_json_option(parser)
    return parser.parse_args()


def main() -> int:
    """Prints an entry for each model on each target; 1 where the mean of a rule is below the target."""
    options = _options()
    about = heading("benchmarks.construction", SCHEMA)
    entries = entries_of(options.json)
    sizes = (options.random, options.each)
    known = Known(options.lines, about["commit"])
    made_by = {"commit": about["commit"], "cpu": about["machine"]["cpu"]}
    done = {(one["model"], one["target"], one["random"], one["each"]) for one in entries}
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models:
            missing = [one for one in options.targets.split(",") if (name, one, *sizes) not in done]
            model = load(export(name, Path(folder), "onnx")) if missing else None
            for target in missing:
                assert model is not None
                rules = figures_of(list(constructions(model, name, target, sizes, known)))
                settings = {"model": name, "target": target, "random": sizes[0], "each": sizes[1]}
                entries.append({**settings, **made_by, "rules": rules})
                write_result(options.json, about | {"target": TARGET, "entries": entries})
                print(entries[-1], flush=True)
    return int(any(one["geometric_mean"] < TARGET for entry in entries for one in entry["rules"].values()))


if __name__ == "__main__":
    sys.exit(main())
