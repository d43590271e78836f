#!/usr/bin/env python3
"""Make a virtual environment apart from the project's: `make_environment.py NAME` (requirements/NAME.txt).

Prints the path of its interpreter. An environment that is complete and of the same pins is left as it is.
Python's standard library only, because it runs before anything is installed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAMES = ("llama-cpp", "ncnn", "tflite-export", "tflite-runtime")
# What is built from source: the list that is installed before, and CMake's options. llama.cpp without what
# reads images and without its programs, which are most of the minutes. GCC 12 drops stores that only AMX's
# instructions read (their header names 8 bytes of a tile configuration's 64), and the library crashes.
BUILT = {
    "llama-cpp": (
        "llama-cpp-build",
        "-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_EXAMPLES=OFF"
        " -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_SERVER=OFF '-DCMAKE_CXX_FLAGS=-fno-tree-dse -fno-dse'",
    )
}


def make(name: str) -> Path:
    """The interpreter of environment `name`, which is made if it is missing or of other pins.

    Raises:
        ValueError: there is no such environment.
        subprocess.CalledProcessError: pip could not install it.
    """
    if name not in NAMES:
        raise ValueError(f"unknown environment {name!r}: use one of {', '.join(NAMES)}")
    before, cmake_options = BUILT.get(name, (None, ""))
    lists = [ROOT / "requirements" / f"{one}.txt" for one in (before, name) if one]
    directory = ROOT / ".cache" / f"env-{name}"
    python = directory / "bin" / "python"
    stamp = directory / "installed"
    wanted = hashlib.sha256(b"".join(one.read_bytes() for one in lists) + cmake_options.encode()).hexdigest()
    if stamp.is_file() and stamp.read_text() == wanted:
        return python
    shutil.rmtree(directory, ignore_errors=True)
    venv.create(directory, with_pip=True)
    # The list is complete: the resolver has nothing to decide and cannot fail on what it would decide, and
    # nothing is installed that the list has no hash of.
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    environment = dict(os.environ)
    if before:
        # Nor is anything built by what the list has no hash of. What builds is the environment's own.
        # pip keeps what it has built, for whatever processor and options, and would take that again.
        command += ["--no-build-isolation", "--no-cache-dir"]
        programs = f"{python.parent}{os.pathsep}{environment.get('PATH', '')}"
        jobs = str(os.cpu_count() or 1)
        environment |= {"PATH": programs, "CMAKE_ARGS": cmake_options, "CMAKE_BUILD_PARALLEL_LEVEL": jobs}
    if name == "tflite-export":
        # Of its gigabytes a conversion imports little, whose bytecode it writes itself.
        command.append("--no-compile")
    for one in lists:
        subprocess.run(
            [*command, "--require-hashes", "-r", str(one)], check=True, stdout=sys.stderr, env=environment
        )
    stamp.write_text(wanted)
    return python


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in NAMES:
        sys.exit(f"usage: make_environment.py {'|'.join(NAMES)}")
    sys.stdout.write(f"{make(sys.argv[1])}\n")
