"""Measured programs of a kit as data that teach.

    python -m benchmarks.gpu_learning.collected KIT RESULTS FILE

KIT is a folder of `python -m benchmarks.gpu.prepare`, of which only the plan is read, and RESULTS what
`python3 -m benchmarks.gpu KIT RESULTS` measured. The lines are appended to FILE, in the form of
`research.collection`. The layers that are compared with libraries count as one network, `layers`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.figures import read
from benchmarks.gpu.kit import Kit
from host.errors import UserError
from host.schedules.design import TOTAL
from research.collection.dataset import MeasuredProgram, append_programs

LAYERS = "layers"


def measured_programs(plan: Mapping[str, Any], items: Mapping[str, Any]) -> Iterator[MeasuredProgram]:
    """The programs of a plan that were timed and compute right.

    Args:
        plan: of a kit.
        items: of the stage "programs", by task.
    """
    for name, task in plan["tasks"].items():
        model, _, kernel = name.partition(" ")
        if model not in plan["models"]:
            model, kernel = LAYERS, name
        results = items.get(name, {}).get("programs", [])
        for number, (one, found) in enumerate(zip(task["programs"], results, strict=False)):
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
                    estimated_s={TOTAL: one["estimate_s"]},
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
    given = parser.parse_args(arguments)
    found = list(measured_programs(Kit(given.kit).plan, read(given.results, "programs")))
    if not found:
        raise UserError(f"{given.results} has no programs of {given.kit}: measure with benchmarks.gpu")
    append_programs(given.file, found)
    sys.stdout.write(f"{given.file}: {len(found)} programs of {len({one.task for one in found})} tasks\n")


if __name__ == "__main__":
    main()
