"""How the process of a command ends."""

from __future__ import annotations

import os
import subprocess
import sys


def _ended(program: str) -> subprocess.CompletedProcess[str]:
    """A program that has ended, whose output is kept until it is full or written out."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=kept)


def test_a_process_ends_with_its_command_and_after_what_packages_do_at_its_end() -> None:
    """Without the time in which the interpreter would free every object, one after the other."""
    program = """
import atexit, sys
from sdk.cli.entry import command
class Freed:
    def __del__(self):
        print("freed")
kept = Freed()
import sdk.cli.main
def run():
    atexit.register(print, "handler", end="")
    print("done")
    return 3
sdk.cli.main.main = run
sys.exit(command())
"""
    done = _ended(program)
    assert (done.returncode, done.stdout, done.stderr) == (3, "done\nhandler", "")


def test_output_that_cannot_be_written_at_the_end_is_no_success() -> None:
    program = """
import os, sys
from sdk.cli.entry import command
import sdk.cli.main
def run():
    sys.stdout.write("figures")
    os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
    return 0
sdk.cli.main.main = run
sys.exit(command())
"""
    done = _ended(program)
    assert done.returncode == 120
    assert "No space left" in done.stderr
