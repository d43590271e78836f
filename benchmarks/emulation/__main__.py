"""All operators right on emulated boards: `python -m benchmarks.emulation --json FILE`.

Gensor's first proposal for each board runs under qemu's user mode, within its model, against ONNX Runtime's
outputs. Emulated time says nothing of a board, so none is printed. Results are written after each operator;
`--resume` goes on from them.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.emulation.verify import Verdict, verify
from benchmarks.operators.comparison import TOLERANCE
from benchmarks.operators.configurations import Operator, select
from benchmarks.result_file import add_json_option, heading, write_result
from host.compile.static_model import defects_as
from host.errors import EdgeError, ScheduleError
from tests.emulation.boards import PROCESSORS, board_of
from tests.emulation.qemu import emulator

SCHEMA = "edgetlm.emulation/1"
_BOARDS = "raspberry_pi_4,raspberry_pi_5,rv64gcv,spacemit_k1,visionfive2"


def entries_of(operator: Operator, verdicts: Mapping[str, Verdict]) -> dict[str, Any]:
    """The results of one operator on one board, by processor."""
    return {
        processor: {
            "class": operator.kind,
            "rule": verdict.rule,
            "max_rel_err": verdict.max_rel_err,
            "verified": verdict.max_rel_err <= TOLERANCE,
        }
        for processor, verdict in verdicts.items()
    }


def failure(operator: Operator, board: str, reason: str) -> dict[str, Any]:
    """The results of an operator that did not come to an end on a board."""
    entry = {"class": operator.kind, "verified": False, "error": reason}
    return {processor: dict(entry) for processor in PROCESSORS[board]}


def attempt(operator: Operator, board: str, folder: Path, limit_s: float) -> dict[str, Any]:
    """Verify one operator on one board; a failure becomes an entry with its reason."""
    try:
        with defects_as(ScheduleError, operator.name):
            return entries_of(operator, verify(operator, board, folder, limit_s))
    except EdgeError as error:
        timed_out = isinstance(error.__cause__, subprocess.TimeoutExpired)
        return failure(operator, board, f"not done after {limit_s:.0f} s" if timed_out else str(error)[:300])


def summary(boards: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    """By board and processor: operators verified, operators in all, and the largest error."""
    found: dict[str, dict[str, Any]] = {}
    for board, operators in boards.items():
        for name, processors in operators.items():
            for processor, entry in processors.items():
                row = found.setdefault(
                    f"{board} {processor}", {"verified": 0, "operators": 0, "max_rel_err": 0.0, "failed": []}
                )
                row["operators"] += 1
                row["verified"] += entry["verified"]
                row["max_rel_err"] = max(row["max_rel_err"], entry.get("max_rel_err", 0.0))
                row["failed"] += [] if entry["verified"] else [name]
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.emulation", description=__doc__)
    parser.add_argument("--boards", default=_BOARDS, help=f"comma-separated, of {', '.join(PROCESSORS)}")
    parser.add_argument("--only", default="", help="comma-separated names or classes of operators")
    parser.add_argument("--limit-s", type=float, default=1200.0, help="for one emulated call")
    parser.add_argument("--resume", action="store_true", help="keep what the file of --json has verified")
    add_json_option(parser, required=True)
    return parser


def _show(name: str, board: str, processors: Mapping[str, Mapping[str, Any]]) -> None:
    for processor, entry in processors.items():
        what = entry.get("error") or f"{entry['rule']}, error {entry['max_rel_err']:.1e}"
        verdict = "verified" if entry["verified"] else "WRONG"
        sys.stdout.write(f"{board:<15} {processor:<22} {name:<27} {verdict}: {what}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; 0 if everything was verified."""
    parser = _parser()
    options = parser.parse_args(arguments)
    boards = options.boards.split(",")
    unknown = [board for board in boards if board not in PROCESSORS]
    if unknown:
        parser.error(f"no board {', '.join(unknown)}; there are {', '.join(PROCESSORS)}")
    try:
        operators = select(options.only.split(",") if options.only else ())
        for board in boards:
            emulator(board_of(board).architecture)
    except KeyError as error:
        parser.error(f"no operator {error.args[0]}")
    except FileNotFoundError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    results = heading("benchmarks.emulation", SCHEMA, arguments) | {"tolerance": TOLERANCE, "boards": {}}
    if options.resume and options.json.is_file():
        results["boards"] = json.loads(options.json.read_text())["boards"]
    # The quick ones first: all boards of one operator share nothing, and the largest takes minutes.
    for operator in sorted(operators, key=_size):
        for board in boards:
            done = results["boards"].setdefault(board, {})
            if all(
                entry["verified"] for entry in done.get(operator.name, {"": {"verified": False}}).values()
            ):
                continue
            with tempfile.TemporaryDirectory(prefix="edgetlm-emulation-") as folder:
                done[operator.name] = attempt(operator, board, Path(folder), options.limit_s)
            _show(operator.name, board, done[operator.name])
            results["summary"] = summary(results["boards"])
            write_result(options.json, results)
    found = summary(results["boards"])
    for label, row in found.items():
        sys.stdout.write(
            f"{label}: {row['verified']} of {row['operators']} verified, error {row['max_rel_err']:.1e}\n"
        )
    return 0 if all(row["verified"] == row["operators"] for row in found.values()) else 1


def _size(operator: Operator) -> int:
    """Elements of the inputs times the depth of the sums: a rough order of work."""
    data = sum(math.prod(shape) for shape in operator.inputs)
    return data * max((math.prod(shape[1:]) for shape in operator.weights[:1]), default=8)


if __name__ == "__main__":
    sys.exit(main())
