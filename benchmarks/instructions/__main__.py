"""Executed instructions of small operators: `python -m benchmarks.instructions --json FILE`.

Gensor's first proposal beside random programs of the same design space, for a board that is not there: exact
counts by Unicorn, cycles by llvm-mca. The model of the pipeline knows no caches: it ranks code, no more.
Figures are written after each operator; `--resume` goes on from them.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.instructions.compiling import LimitedCompiler
from benchmarks.instructions.counted import GENSOR, count, programs_of
from benchmarks.instructions.counting import build_counter
from benchmarks.instructions.figures import SCHEMA, entry_of, least_cycles, summary
from benchmarks.instructions.shapes import MAX_FLOP, SMALL
from benchmarks.operators.configurations import Operator
from benchmarks.operators.subject import prepare
from benchmarks.result_file import add_json_option, heading, write_result
from host.build import KernelCache
from host.compile.static_model import defects_as
from host.errors import EdgeError, ScheduleError
from host.model import DeviceProfile
from research.modelled_boards.listing import tool
from tests.emulation.boards import board_of

# Boards that Unicorn has the instructions and llvm-mca the pipeline of.
BOARDS = ("raspberry_pi_4", "raspberry_pi_3", "visionfive2")


@dataclass(frozen=True)
class Bench:
    """The compiler and the counter that all operators use.

    Attributes:
        profile: the board.
        samples: random programs per operator.
        seed: that they are drawn with.
        compiler: ends programs that take too long.
        counter: of `build_counter`.
        folder: for files.
    """

    profile: DeviceProfile
    samples: int
    seed: int
    compiler: LimitedCompiler
    counter: Path
    folder: Path

    def entry(self, operator: Operator) -> dict[str, Any]:
        """The figures of one operator, or the reason why there are none."""
        try:
            with defects_as(ScheduleError, operator.name):
                return self._measured(operator)
        except EdgeError as error:
            return {"class": operator.kind, "error": str(error)[:300]}

    def _measured(self, operator: Operator) -> dict[str, Any]:
        task = prepare(operator, self.profile, self.folder).task
        assert task.flops <= MAX_FLOP, f"{operator.name} has {task.flops / 1e6:.0f} MFLOP"
        programs = programs_of(task, self.profile, self.samples, self.seed, self.compiler, self.folder)
        folder = self.folder / operator.name
        found = count(programs.functions, task, self.profile.board, folder, self.counter, self.compiler.cache)
        samples = [one for name, one in found.items() if name != GENSOR]
        entry = entry_of(operator.kind, task.flops, found[GENSOR], samples, programs.failed)
        entry["least_cycles"] = least_cycles(task.flops, self.profile.hardware)
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
        f"{loop['fused_multiply_adds']} multiply-adds"
        + (f", {len(theirs['failed'])} programs without figures\n" if theirs["failed"] else "\n")
    )
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instructions", description=__doc__)
    parser.add_argument("--board", default=BOARDS[0], choices=BOARDS)
    parser.add_argument("--only", default="", help=", ".join(operator.name for operator in SMALL))
    parser.add_argument("--samples", type=int, default=64, help="random programs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit-s", type=float, default=60.0, help="seconds that one program may compile")
    parser.add_argument(
        "--resume", action="store_true", help="keep the operators that the file of --json has"
    )
    add_json_option(parser)
    return parser


def resumed(path: Path | None, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Operators with figures in a file of an earlier run.

    Raises:
        ValueError: there is no file, or its figures are of other settings.
    """
    if path is None:
        raise ValueError("--resume needs --json")
    if not path.is_file():
        return {}
    found = json.loads(path.read_text())
    differing = [name for name, value in settings.items() if found.get(name) != value]
    if differing:
        raise ValueError(f"{path} has figures of another {', '.join(differing)}; give another file")
    return {name: entry for name, entry in found["operators"].items() if "error" not in entry}


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; 0 if every operator has figures."""
    parser = _parser()
    options = parser.parse_args(arguments)
    wanted = set(filter(None, options.only.split(",")))
    unknown = wanted - {operator.name for operator in SMALL}
    if unknown:
        parser.error(f"no operator {', '.join(sorted(unknown))}")
    board = board_of(options.board)
    about = heading("benchmarks.instructions", SCHEMA, arguments)
    settings = {
        "schema": SCHEMA,
        "board": options.board,
        "processor": board.tvm_target["mcpu"],
        "samples": options.samples,
        "seed": options.seed,
    }
    try:
        for name in ("llvm-objdump", "llvm-mca"):
            tool(name)
        operators = resumed(options.json, settings) if options.resume else {}
    except FileNotFoundError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except ValueError as error:
        parser.error(str(error))
    profile = DeviceProfile(options.board, board, board.hardware, 1)
    with tempfile.TemporaryDirectory(prefix="edgetlm-instructions-") as name:
        folder = Path(name)
        with closing(LimitedCompiler(KernelCache(), options.limit_s)) as compiler:
            counter = build_counter(folder)
            bench = Bench(profile, options.samples, options.seed, compiler, counter, folder)
            for operator in SMALL:
                if (wanted and operator.name not in wanted) or operator.name in operators:
                    continue
                operators[operator.name] = bench.entry(operator)
                show(operator.name, operators[operator.name])
                content = {**about, **settings, "operators": operators, **summary(operators)}
                write_result(options.json, content)
    found = summary(operators)
    for ratio, value in found["geomean"].items():
        sys.stdout.write(f"{ratio}: {value:.3f} (worst {found['worst'][ratio]})\n")
    return 0 if all("error" not in entry for entry in operators.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
