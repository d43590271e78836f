"""ONNX's own node tests through our importer and the compiler: which pass, and why the others do not.

`python -m benchmarks.onnx_nodes [--only TEXT] [--workers N] [--json FILE]` runs every node test of
`onnx.backend.test` that ONNX Runtime passes. Cases run in worker processes that are killed past a time limit
and replaced when they crash. Every kernel runs in guarded memory (`tests.memory_check`): one that touches
what is not its own, or reads what was never written, makes the case `wrong` or a `crash`, with its name.
A case whose shapes depend on the values of its small inputs gets these by `--value`, and is counted apart.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from typing import Any

from benchmarks.onnx_nodes.workers import run_cases
from benchmarks.result_file import add_json_option, heading, write_result

SCHEMA = "edgetlm.onnx_nodes/1"

# What a case ends as; only the first four are of cases that ONNX Runtime passes.
OUTCOMES = ("passed", "reason", "wrong", "crash", "timeout", "error", "excluded")


def summarise(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts, the share that passes, and the reasons of the rest by operator."""
    counts = Counter(result["outcome"] for result in results)
    considered = sum(count for outcome, count in counts.items() if outcome != "excluded")
    operators = Counter(result.get("operator") or "-" for result in results if result["outcome"] == "reason")
    return {
        "cases": len(results),
        "considered": considered,
        "passed_share": counts["passed"] / considered if considered else 0.0,
        "passed_with_values": sum(bool(result.get("values")) for result in results),
        "counts": {outcome: counts[outcome] for outcome in OUTCOMES},
        "reasons_by_operator": dict(operators.most_common()),
    }


def print_table(results: list[dict[str, Any]], summary: dict[str, Any], verbose: bool) -> None:
    """Write the table to stdout."""
    if verbose:
        for result in results:
            if result["outcome"] not in ("passed", "excluded"):
                sys.stdout.write(
                    f"{result['outcome']:8} {result['name']:60} {result.get('detail', '')[:150]}\n"
                )
    sys.stdout.write(f"{summary['cases']} node tests, {summary['considered']} of them pass in ONNX Runtime\n")
    for outcome, count in summary["counts"].items():
        sys.stdout.write(f"{outcome:10} {count:6}\n")
    sys.stdout.write(f"passed through tvm: {summary['passed_share']:.1%}")
    sys.stdout.write(f", {summary['passed_with_values']} of them with inputs fixed by --value\n")


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.onnx_nodes", description=__doc__)
    parser.add_argument(
        "--only", default="", help="comma-separated texts, one of which the name must contain"
    )
    parser.add_argument("--share", type=float, default=1.0, help="of the cases, all operators in turn")
    parser.add_argument("--seed", type=int, default=0, help="decides which cases make the share")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--time-limit-s", type=float, default=60.0, help="of one case")
    parser.add_argument("--constants", action="store_true", help="all inputs but the first as constants")
    parser.add_argument("--drawn", action="store_true", help="golden inputs drawn, not the case's own")
    parser.add_argument("--plain", action="store_true", help="TVM's default compilation, not ours")
    add_json_option(parser)
    parser.add_argument("--verbose", action="store_true", help="list every case that does not pass")
    options = parser.parse_args(arguments)
    texts = [text for text in options.only.split(",") if text]
    flags = [f"--{name}" for name in ("constants", "drawn", "plain") if getattr(options, name)]
    about = heading("benchmarks.onnx_nodes", SCHEMA, arguments)
    results = run_cases(texts, options.share, options.seed, options.workers, options.time_limit_s, flags)
    summary = summarise(results)
    print_table(results, summary, options.verbose)
    write_result(options.json, {**about, "summary": summary, "cases": results})
    return 0


if __name__ == "__main__":
    sys.exit(main())
