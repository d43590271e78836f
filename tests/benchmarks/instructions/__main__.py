"""Executed instructions of small operators: `python -m tests.benchmarks.instructions --json FILE`.

Gensor's first proposal beside random programs of the same design space, for a board that is not there: exact
counts by Unicorn, cycles by llvm-mca. The model of the pipeline knows no caches: it ranks code, no more.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from host.build import KernelCache
from host.deployment.compile import defects_as
from host.errors import EdgeError, ScheduleError
from host.model import DeviceProfile
from tests.benchmarks.instructions.counted import GENSOR, count, programs_of
from tests.benchmarks.instructions.counting import build_counter
from tests.benchmarks.instructions.figures import SCHEMA, entry_of, least_cycles, summary
from tests.benchmarks.instructions.listing import tool
from tests.benchmarks.instructions.shapes import MOST_FLOP, SMALL
from tests.benchmarks.operators.configurations import Operator
from tests.benchmarks.operators.subject import prepare
from tests.emulation.boards import board_of

# Boards that Unicorn has the instructions and llvm-mca the pipeline of.
BOARDS = ("raspberry_pi_4", "raspberry_pi_3", "visionfive2")


def measure(
    operator: Operator, profile: DeviceProfile, samples: int, seed: int, folder: Path, counter: Path
) -> dict[str, Any]:
    """The entry of one operator.

    Raises:
        EdgeError: it does not lower, has no design space, or a program is wrong.
    """
    cache = KernelCache()
    with defects_as(ScheduleError, operator.name):
        task = prepare(operator, profile, folder).task
        assert task.flops <= MOST_FLOP, f"{operator.name} has {task.flops / 1e6:.0f} MFLOP"
        functions = programs_of(task, profile, samples, seed, cache)
        found = count(functions, task, profile.board, folder / operator.name, counter, cache)
    entry = entry_of(
        operator.kind, task.flops, found[GENSOR], [one for name, one in found.items() if name != GENSOR]
    )
    entry["least_cycles"] = least_cycles(task.flops, profile.hardware)
    return entry


def show(name: str, entry: dict[str, Any]) -> None:
    """One line for an operator."""
    if "error" in entry:
        sys.stdout.write(f"{name:<26} {entry['error']}\n")
        return
    ours, theirs = entry["gensor"], entry["random64"]
    loop = ours["hot_loop"]
    sys.stdout.write(
        f"{name:<24} instructions {ours['instructions']} (best {theirs['best_instructions']}, median "
        f"{theirs['median_instructions']:.0f}), cycles {ours['estimated_cycles']:.0f} (best "
        f"{theirs['best_cycles']:.0f}, median {theirs['median_cycles']:.0f}), hot loop "
        f"{ours['mca_cycles'] or 0:.1f} cycles, {loop['instructions']} instructions, "
        f"{loop['fused_multiply_adds']} multiply-adds\n"
    )
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.instructions", description=__doc__)
    parser.add_argument("--board", default=BOARDS[0], choices=BOARDS)
    parser.add_argument("--only", default="", help=", ".join(operator.name for operator in SMALL))
    parser.add_argument("--samples", type=int, default=64, help="random programs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="where the figures go")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; 0 if every operator has figures."""
    parser = _parser()
    options = parser.parse_args(arguments)
    wanted = set(filter(None, options.only.split(",")))
    unknown = wanted - {operator.name for operator in SMALL}
    if unknown:
        parser.error(f"no operator {', '.join(sorted(unknown))}")
    try:
        for name in ("llvm-objdump", "llvm-mca"):
            tool(name)
    except FileNotFoundError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    board = board_of(options.board)
    profile = DeviceProfile(options.board, board, board.hardware, 1)
    operators: dict[str, Any] = {}
    results = {"schema": SCHEMA, "board": options.board, "processor": board.tvm_target["mcpu"]}
    with tempfile.TemporaryDirectory(prefix="edgetlm-instructions-") as name:
        counter = build_counter(Path(name))
        for operator in SMALL:
            if wanted and operator.name not in wanted:
                continue
            try:
                entry = measure(operator, profile, options.samples, options.seed, Path(name), counter)
            except EdgeError as error:
                entry = {"class": operator.kind, "error": str(error)[:300]}
            operators[operator.name] = entry
            show(operator.name, entry)
            if options.json is not None:
                found = {**results, "operators": operators, **summary(operators)}
                options.json.write_text(json.dumps(found, indent=1) + "\n")
    for ratio, value in summary(operators)["geomean"].items():
        sys.stdout.write(f"{ratio}: {value:.3f} (worst {summary(operators)['worst'][ratio]})\n")
    return 0 if all("error" not in entry for entry in operators.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
