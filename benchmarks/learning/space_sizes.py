"""How many legal programs the tasks of networks have, by board and rule.

    python -m benchmarks.learning.space_sizes FILES... [--boards NAMES] [--bands] [--least N] [--json F]

FILES are ONNX files. A board is "local", "local-avx2" (this machine without AVX-512), a declared one, or
BOARD-gpu; "-fp16" or "-bf16" behind a name has models in that type. Sizes are values of all decisions, times
the legal share of random ones. With `--bands`, chains of convolutions in bands of rows count where the passes
take none, as plans try them. Tasks with more than N programs are listed.

`sizes` has the number of tasks of each board and rule, of those with more than 100,000 programs, and the
median and the largest size; `large` has the tasks with more than N programs.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.modelled_boards.choices import programs_in
from benchmarks.result_file import add_json_option, heading, write_result
from host.errors import EdgeError, ScheduleError
from host.importers import load_here as load
from host.lowering import lower
from host.lowering.bands.choice import ROWS_KIND
from host.model import ImportedModel
from host.options.numeric_types import half_of
from host.schedules import DesignSpace, space_for
from host.transport import connect
from research.pretraining.boards import board_of
from targets import Board, board_for

SCHEMA = "edgetlm.space_sizes/1"
LARGE = 100_000
_BOARDS = "local,local-avx2,raspberry_pi_5,jetson_orin_nano-gpu,jetson_orin_nano-gpu-fp16"
_TYPES = ("fp16", "bf16")


def board_and_type(name: str) -> tuple[Board, str]:
    """The board with this name here, and the type of its models as lowering takes it; "" is single precision.

    Raises:
        ValueError: no such board.
    """
    parts = name.split("-")
    half = half_of(parts.pop()) if parts[-1] in _TYPES else ""
    if parts[0] != "local":
        gpu = parts[-1] == "gpu"
        return board_of("-".join(parts[:-1] if gpu else parts), gpu), half
    with connect("local") as device:
        board = board_for(device.describe(), *parts[1:])
    if board is None:
        raise ValueError(f"{name}: no such part of this machine")
    return board, half


def spaces_of(
    model: ImportedModel, board: Board, half: str, threads: int, in_bands: bool
) -> Iterator[DesignSpace]:
    """The design spaces of a model's tasks, with its chains in the largest bands if that is wanted."""
    made = lower(model, board, half=half)
    tasks = list(made.tasks)
    if in_bands:
        decisions = {site.name: site.options[-1] for site in made.sites if site.kind == ROWS_KIND}
        tasks += lower(model, board, half=half, decisions=decisions).tasks
    for task in tasks:
        try:
            space = space_for(task, board.hardware, threads)
        except ScheduleError:
            continue
        if space.decisions:
            yield space


def size_of(space: DesignSpace) -> float:
    """About how many legal programs a space has; of a small one, all values."""
    values = math.prod(len(decision.choices) for decision in space.decisions)
    return float(values) if values <= LARGE else programs_in(space)


def row_of(board: str, model: str, space: DesignSpace, size: float) -> dict[str, Any]:
    """A task with its size."""
    return {
        "board": board,
        "model": model,
        "task": f"{space.task.name} {space.task.workload_hash[:12]}",
        "rule": space.rule.name,
        "kind": space.workload.anchor_stage.kind,
        "mflop": round(space.task.flops / 1e6, 1),
        "programs": float(f"{size:.3g}"),
    }


def figures_of(sizes: Mapping[str, Sequence[float]]) -> dict[str, dict[str, float]]:
    """Of each rule how many tasks there are and how many with a large space, and the sizes."""
    return {
        rule: {
            "tasks": len(known),
            "large": sum(one > LARGE for one in known),
            "median": float(f"{statistics.median(known):.3g}"),
            "most": float(f"{max(known):.3g}"),
        }
        for rule, known in sorted(sizes.items())
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the large tasks of each board, and a table by rule."""
    parser = argparse.ArgumentParser(prog="benchmarks.learning.space_sizes", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--boards", default=_BOARDS, help="separated by commas")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--least", type=float, default=LARGE, help="list tasks with more programs")
    parser.add_argument("--bands", action="store_true", help="chains in bands, too, as plans try them")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    about = heading("benchmarks.learning.space_sizes", SCHEMA, arguments)
    boards = {name: board_and_type(name) for name in options.boards.split(",")}
    sizes: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in boards}
    seen: set[tuple[str, str]] = set()
    large: list[dict[str, Any]] = []
    for path in options.files:
        model = load(path, golden_cases=1)
        for name, (board, half) in boards.items():
            try:
                spaces = list(spaces_of(model, board, half, options.threads, options.bands))
            except EdgeError as error:
                print(f"{name} {path.stem} is left out: {error}", file=sys.stderr)
                continue
            for space in spaces:
                key = name, space.task.workload_hash
                if key not in seen:
                    seen.add(key)
                    size = size_of(space)
                    sizes[name][space.rule.name].append(size)
                    if size > options.least:
                        large.append(row_of(name, path.stem, space, size))
                        print(*large[-1].values(), flush=True)
    found = {name: figures_of(by_rule) for name, by_rule in sizes.items()}
    write_result(options.json, about | {"sizes": found, "large": large})
    for name, by_rule in found.items():
        for rule, one in by_rule.items():
            print(f"{name}: {rule:18s}", *(f"{title} {value:g}" for title, value in one.items()))


if __name__ == "__main__":
    main()
