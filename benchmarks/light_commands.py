"""Processor seconds of the commands that need no compiler: help, lists and mistakes.

    python -m benchmarks.light_commands [--repeats 5] [--root FOLDER] [--json FILE]

Each command runs in a process of its own, with empty folders for the user's files. Its seconds are those of
the processor, in user and system mode, of the process and of the children that it waits for, so other work on
the machine hardly changes them. Modules are compiled once, as in an installed package. `--root` runs the
commands of another checkout with this interpreter.
"""

from __future__ import annotations

import argparse
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.result_file import ROOT, add_json_option, heading, write_result
from host.errors import UserError

SCHEMA = "edgetlm.light_commands/1"
# Exit codes of a command that was done and of one that was refused.
_ANSWERS = (0, 2)
_AGAINST_COMPILED_MODULES = ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")
COMMANDS = (
    "--version",
    "",
    "deploy --help",
    "targets",
    "devices list",
    "bundles",
    "deploy absent.onnx",
    "deploy present.onnx --device absent",
    "deploy present.onnx --objective absent",
    "run absent --input absent.npz",
    "tlm card",
)


def seconds_of(words: Sequence[str], folder: Path, root: Path) -> float:
    """Processor seconds of one command.

    Args:
        words: of the command line, after `sdk`.
        folder: the working folder, with the user's files.
        root: the checkout whose command it is.

    Raises:
        UserError: the command neither did what it was asked for nor refused it: its time says nothing.
    """
    homes = {
        name: str(folder / name.lower()) for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME")
    }
    # The first run, which is not counted, leaves the compiled modules beside their sources.
    environment = {name: text for name, text in os.environ.items() if name not in _AGAINST_COMPILED_MODULES}
    process = subprocess.Popen(
        [sys.executable, "-m", "sdk.cli", *words],
        cwd=folder,
        env=environment | homes | {"PYTHONPATH": str(root), "COLUMNS": "80"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    # What `wait4` took is no longer there for `Popen` to wait for.
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in _ANSWERS:
        raise UserError(f"sdk {shlex.join(words)} ended with code {process.returncode}: run it to see why")
    return usage.ru_utime + usage.ru_stime


def measured(command: str, repeats: int, root: Path) -> dict[str, Any]:
    """The figures of one command; the first run is not counted."""
    with tempfile.TemporaryDirectory(prefix="edgetlm-light-") as name:
        folder = Path(name)
        (folder / "present.onnx").write_bytes(b"\x08")
        seconds = [seconds_of(command.split(), folder, root) for _ in range(repeats + 1)][1:]
    return {"command": f"sdk {command}".strip(), "cpu_s": round(statistics.median(seconds), 3)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description="Processor seconds of light commands.")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--root", type=Path, default=ROOT)
    add_json_option(parser)
    given = parser.parse_args(arguments)
    result = heading("benchmarks.light_commands", SCHEMA, arguments)
    rows = []
    for command in COMMANDS:
        rows.append(measured(command, given.repeats, given.root.resolve()))
        print(f"{rows[-1]['cpu_s']:7.2f} s  {rows[-1]['command']}", flush=True)
    write_result(given.json, result | {"repeats": given.repeats, "commands": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
