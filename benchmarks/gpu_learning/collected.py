"""Measured programs of a kit as data that teach.

    python -m benchmarks.gpu_learning.collected KIT RESULTS FILE [--files ONNX_FOLDER]

KIT is a folder of `python -m benchmarks.gpu.prepare`, of which only the plan is read, and RESULTS what
`python3 -m benchmarks.gpu KIT RESULTS` measured. The lines are appended to FILE, in the form of
`research.collection`. With the ONNX files of the plan's models the estimates are those of today's rules, with
their parts, and programs of rules that have changed since are left out; without, they are those of the plan.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.figures import read
from benchmarks.gpu.kit import Kit
from benchmarks.gpu.layers import all_layers
from benchmarks.gpu.prepare import gpu_profile_of
from host.errors import ScheduleError, UserError
from host.importers import load_here
from host.lowering import lower
from host.options.numeric_types import half_of
from host.schedules import DesignSpace, space_for
from host.schedules.design import TOTAL
from research.collection.dataset import MeasuredProgram, append_programs
from tests.unit.schedules.functions import task as task_of


def spaces_of(files: Path, models: Sequence[str]) -> dict[str, DesignSpace]:
    """The design spaces of all layers and of the tasks of some models, by workload hash."""
    profile = gpu_profile_of()
    tasks = [task_of(layer.function, "layer") for layer in all_layers()]
    for name in models:
        model = load_here(files / f"{name}.onnx", golden_cases=1)
        tasks += lower(model, profile.board, half=half_of("fp16")).tasks
    found = {}
    for task in tasks:
        try:
            found[task.workload_hash] = space_for(task, profile.hardware, profile.threads)
        except ScheduleError:
            continue
    return found


def measured_programs(
    plan: Mapping[str, Any],
    items: Mapping[str, Any],
    spaces: Mapping[str, DesignSpace] | None = None,
) -> Iterator[MeasuredProgram]:
    """The programs of a plan that were timed and compute right.

    Args:
        plan: of a kit.
        items: of the stage "programs", by task.
        spaces: by workload hash, for today's estimates; None takes those of the plan.
    """
    for name, task in plan["tasks"].items():
        # The names of tasks and of layers begin with that of their network.
        model, _, kernel = name.partition(" ")
        results = items.get(name, {}).get("programs", [])
        space = None if spaces is None else spaces.get(task["task"])
        for number, (one, found) in enumerate(zip(task["programs"], results, strict=False)):
            estimated: Mapping[str, float] = {TOTAL: one["estimate_s"]}
            if spaces is not None:
                rule = (one["rule"], one["version"])
                if space is None or rule != (space.rule.name, space.rule.version):
                    continue
                estimated = space.estimated(one["decisions"])
            if "seconds" in found:
                yield MeasuredProgram(
                    model=model,
                    task=task["task"],
                    name=kernel,
                    rule=one["rule"],
                    version=one["version"],
                    decisions=one["decisions"],
                    origin=one["proposer"],
                    times_s=tuple(found["seconds"]),
                    estimated_s=estimated,
                    first=number == 0,
                )


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line.

    Raises:
        UserError: nothing of the kit was measured.
    """
    parser = argparse.ArgumentParser(prog="benchmarks.gpu_learning.collected", description=__doc__)
    parser.add_argument("kit", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--files", type=Path, help="folder of the models' ONNX files, for today's estimates")
    given = parser.parse_args(arguments)
    plan = Kit(given.kit).plan
    spaces = spaces_of(given.files, plan["models"]) if given.files else None
    found = list(measured_programs(plan, read(given.results, "programs"), spaces))
    if not found:
        raise UserError(f"{given.results} has no programs of {given.kit}: measure with benchmarks.gpu")
    append_programs(given.file, found)
    sys.stdout.write(f"{given.file}: {len(found)} programs of {len({one.task for one in found})} tasks\n")


if __name__ == "__main__":
    main()
