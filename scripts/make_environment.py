#!/usr/bin/env python3
"""Make a virtual environment apart from the project's: `make_environment.py NAME` (requirements/NAME.txt).

Prints the path of its interpreter. An environment that is complete and of the same pins is left as it is.
Python's standard library only, because it runs before anything is installed.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAMES = ("ncnn", "tflite-export", "tflite-runtime")


def make(name: str) -> Path:
    """The interpreter of environment `name`, which is made if it is missing or of other pins.

    Raises:
        ValueError: there is no such environment.
        subprocess.CalledProcessError: pip could not install it.
    """
    if name not in NAMES:
        raise ValueError(f"unknown environment {name!r}: use one of {', '.join(NAMES)}")
    requirements = ROOT / "requirements" / f"{name}.txt"
    directory = ROOT / ".cache" / f"env-{name}"
    python = directory / "bin" / "python"
    stamp = directory / "installed"
    wanted = hashlib.sha256(requirements.read_bytes()).hexdigest()
    if stamp.is_file() and stamp.read_text() == wanted:
        return python
    shutil.rmtree(directory, ignore_errors=True)
    venv.create(directory, with_pip=True)
    # The list is complete: the resolver has nothing to decide and cannot fail on what it would decide, and
    # nothing is installed that the list has no hash of.
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    if name == "tflite-export":
        # Of its gigabytes a conversion imports little, whose bytecode it writes itself.
        command.append("--no-compile")
    subprocess.run([*command, "--require-hashes", "-r", str(requirements)], check=True, stdout=sys.stderr)
    stamp.write_text(wanted)
    return python


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in NAMES:
        sys.exit(f"usage: make_environment.py {'|'.join(NAMES)}")
    sys.stdout.write(f"{make(sys.argv[1])}\n")
