"""Make the committed results again: `python -m benchmarks.reproduce [--list] [RESULT ...]`.

Runs the commands of `runs.toml` one after the other, each into its file of `benchmarks/results`; all of them
where none is named. Results whose times count need a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.result_file import RESULTS, ROOT


@dataclass(frozen=True)
class Run:
    """The command that makes one result file.

    Attributes:
        result: name of the file, without its ending.
        command: the command line, without `--json`.
        minutes: about how long it takes on two cores.
        quiet: whether it measures times, so that the machine must do nothing else.
        needs: what has to be run or installed before; "" for nothing.
    """

    result: str
    command: str
    minutes: int
    quiet: bool
    needs: str = ""

    def words(self) -> list[str]:
        """The command line, with this interpreter and the result file."""
        _, *words = shlex.split(self.command)
        return [sys.executable, *words, "--json", str((RESULTS / f"{self.result}.json").relative_to(ROOT))]


def _read() -> dict[str, Run]:
    content = tomllib.loads(Path(__file__).with_name("runs.toml").read_text())
    return {entry["result"]: Run(**entry) for entry in content["run"]}


RUNS = _read()


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; 1 if a benchmark failed, and the others run all the same."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reproduce", description=__doc__)
    parser.add_argument("results", nargs="*", metavar="RESULT", help=", ".join(RUNS))
    parser.add_argument("--list", action="store_true", help="only say what would run, and how long")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.results if name not in RUNS]
    if unknown:
        parser.error(f"no result {', '.join(unknown)}; there are {', '.join(RUNS)}")
    runs = [RUNS[name] for name in options.results or RUNS]
    failed = []
    for run in runs:
        quiet = ", on a quiet machine" if run.quiet else ""
        needs = f", after {run.needs}" if run.needs else ""
        print(f"{run.result} (about {run.minutes} min{quiet}{needs}): {run.command}", flush=True)
        if not options.list and subprocess.run(run.words(), cwd=ROOT, check=False).returncode:
            failed.append(run.result)
    if options.list:
        print(f"about {sum(run.minutes for run in runs)} minutes in all")
    for name in failed:
        print(f"{name} failed", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
