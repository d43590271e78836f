"""How the process of a command ends."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# A command in place of those of `sdk`, which load packages only when they run.
_COMMAND = """
import sys, types
from sdk.cli.entry import command
sys.modules["sdk.cli.main"] = types.SimpleNamespace(main=run)
sys.exit(command())
"""


def _ended(run: str) -> subprocess.CompletedProcess[str]:
    """A command `run` that has ended, whose output is kept until it is full or written out."""
    program = run + _COMMAND
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=kept)


def test_a_process_ends_with_its_command_and_after_what_packages_do_at_its_end() -> None:
    """Without the time in which the interpreter would free every object, one after the other."""
    program = """
import atexit
class Freed:
    def __del__(self):
        print("freed")
kept = Freed()
def run():
    atexit.register(print, "handler", end="")
    print("done")
    return 3
"""
    done = _ended(program)
    assert (done.returncode, done.stdout, done.stderr) == (3, "done\nhandler", "")


def test_what_a_tool_does_at_the_end_is_done_though_it_was_there_first() -> None:
    """As one that measures coverage, which the interpreter loads before any command."""
    program = """
import atexit
atexit.register(print, "measured", end="")
run = lambda: 3
"""
    done = _ended(program)
    assert (done.returncode, done.stdout, done.stderr) == (3, "measured", "")


def test_output_that_cannot_be_written_at_the_end_is_no_success() -> None:
    program = """
import os, sys
def run():
    sys.stdout.write("figures")
    os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
    return 0
"""
    done = _ended(program)
    assert done.returncode == 120
    assert "No space left" in done.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&- 2>&-"])
def test_a_process_without_a_stream_ends_as_any_other_and_keeps_its_place(closed: str) -> None:
    """Of a file that got the number of a stream, what a library prints would be a part."""
    program = """
import os, sys
def run():
    sys.stdin.read(), sys.stdout.flush(), sys.stderr.flush()
    return 5 if os.open(os.devnull, os.O_RDONLY) > 2 else 1
"""
    command = ["sh", "-c", f'exec "$0" -c "$1" {closed}', sys.executable, program + _COMMAND]
    done = subprocess.run(command, capture_output=True, input="", text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (5, "", "")
