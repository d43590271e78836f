"""Runs the harness by hand: see docs/fuzzing.md.

    python -m tests.fuzz TARGET [--count N] [--seed S] [--jobs J] [--minutes M] [--no-corpus] [--json FILE]
    python -m tests.fuzz TARGET --input FILE_OR_FOLDER

Prints a summary as JSON and ends with 1 if a rule was broken.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.result_file import add_json_option, heading, write_result
from tests.fuzz.case import Case, Target
from tests.fuzz.runner import KEPT, Plan, Summary, judged, run
from tests.fuzz.targets import TARGETS, target_of

_SHOWN = 10
SCHEMA = "edgetlm.fuzz/1"


def main() -> int:
    """The exit status."""
    options = _options()
    target = target_of(options.target)
    if options.input is not None:
        return _again(target, Case.read(options.input))
    plan = Plan(
        options.count, options.seed, options.jobs, not options.no_corpus, options.minutes, options.kept
    )
    about = heading("tests.fuzz", SCHEMA)
    began = time.monotonic()
    summary = run(target, plan, _Progress(options.target, options.count))
    print(file=sys.stderr)
    figures = _figures(options.target, plan, summary, time.monotonic() - began)
    print(json.dumps(figures, indent=1))
    write_result(options.json, about | figures)
    return 1 if summary.violations else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("target", choices=sorted(TARGETS))
    parser.add_argument("--count", type=int, default=1000, help="seeds, beside the corpus")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("--minutes", type=float, default=0.0, help="when to stop; go on at next_seed")
    parser.add_argument("--no-corpus", action="store_true", help="the seeds alone")
    parser.add_argument(
        "--kept", type=lambda text: Path(text).absolute(), default=KEPT, help="folder of what is found"
    )
    parser.add_argument("--input", type=Path, help="one case, which was kept")
    add_json_option(parser)
    return parser.parse_args()


def _again(target: Target, case: Case) -> int:
    with tempfile.TemporaryDirectory(prefix="edgetlm-fuzz-") as place:
        target.open(Path(place).resolve())
        outcome, seconds = judged(target, case)
        target.close()
    print(json.dumps({**vars(outcome), "seconds": round(seconds, 3)}, indent=1))
    return 1 if outcome.violation else 0


class _Progress:
    """A line on the terminal, or one a minute in a file."""

    def __init__(self, name: str, count: int) -> None:
        self._name, self._count = name, count
        self._again_s = 0.0
        self._live = sys.stderr.isatty()

    def __call__(self, summary: Summary) -> None:
        if time.monotonic() < self._again_s:
            return
        self._again_s = time.monotonic() + (1.0 if self._live else 60.0)
        counts = ", ".join(f"{kind} {number}" for kind, number in summary.outcomes.most_common())
        line = f"{self._name}: {summary.cases} of {self._count} ({counts})"
        print(
            line + f", {len(summary.violations)} violations",
            end="\r" if self._live else "\n",
            file=sys.stderr,
        )


def _figures(name: str, plan: Plan, summary: Summary, wall_s: float) -> dict[str, Any]:
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return {
        "target": name,
        "seeds": [plan.seed, summary.next_seed],
        "next_seed": summary.next_seed,
        "cases": summary.cases,
        "outcomes": dict(summary.outcomes.most_common()),
        "violations": len(summary.violations),
        "first_violations": summary.violations[:_SHOWN],
        "worst_s": summary.worst_s[0],
        "worst_s_case": summary.worst_s[1],
        "worst_case_bytes": summary.worst_bytes[0],
        "worst_case_bytes_case": summary.worst_bytes[1],
        "worst_process_bytes": peak * 1024,
        "wall_s": round(wall_s, 1),
    }


if __name__ == "__main__":
    sys.exit(main())
