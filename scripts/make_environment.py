#!/usr/bin/env python3
"""Make a virtual environment apart from the project's: `make_environment.py NAME` (requirements/NAME.txt).

Prints the path of its interpreter. An environment that is complete and of the same pins is left as it is.
Python's standard library only, because it runs before anything is installed.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
NAMES = ("llama-cpp", "ncnn", "onnxruntime-genai", "openvino-genai", "tflite-export", "tflite-runtime")


class Built(NamedTuple):
    """How a package is built from its source.

    Attributes:
        before: the list that is installed before.
        options: of CMake.
        header: what every C++ file includes first.
    """

    before: str
    options: str
    header: str


# Without what reads images and without programs, which are most of the minutes.
BUILT = {
    "llama-cpp": Built(
        "llama-cpp-build",
        "-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_EXAMPLES=OFF"
        " -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_SERVER=OFF",
        "llama-cpp-amx.h",
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
    built = BUILT.get(name)
    lists = [ROOT / "requirements" / f"{one}.txt" for one in ((built.before, name) if built else (name,))]
    directory = ROOT / ".cache" / f"env-{name}"
    python = directory / "bin" / "python"
    stamp = directory / "installed"
    content = b"".join(one.read_bytes() for one in lists)
    if built:
        content += (ROOT / "requirements" / built.header).read_bytes() + built.options.encode()
    wanted = hashlib.sha256(content).hexdigest()
    if stamp.is_file() and stamp.read_text() == wanted:
        return python
    shutil.rmtree(directory, ignore_errors=True)
    venv.create(directory, with_pip=True)
    # The list is complete: the resolver has nothing to decide and cannot fail on what it would decide, and
    # nothing is installed that the list has no hash of.
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    environment = dict(os.environ)
    if built:
        # Nor is anything built by what the list has no hash of. What builds is the environment's own.
        # pip keeps what it has built, for whatever processor and options, and would take that again.
        command += ["--no-build-isolation", "--no-cache-dir"]
        environment |= _of_build(built, python.parent)
    if name == "tflite-export":
        # Of its gigabytes a conversion imports little, whose bytecode it writes itself.
        command.append("--no-compile")
    for one in lists:
        subprocess.run(
            [*command, "--require-hashes", "-r", str(one)], check=True, stdout=sys.stderr, env=environment
        )
    stamp.write_text(wanted)
    return python


def _of_build(built: Built, programs: Path) -> dict[str, str]:
    """Variables of a build with the programs of a folder."""
    return {
        "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', '')}",
        "CMAKE_ARGS": built.options,
        "CMAKE_BUILD_PARALLEL_LEVEL": str(os.cpu_count() or 1),
        "CXXFLAGS": f"-include {shlex.quote(str(ROOT / 'requirements' / built.header))}",
    }


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in NAMES:
        sys.exit(f"usage: make_environment.py {'|'.join(NAMES)}")
    sys.stdout.write(f"{make(sys.argv[1])}\n")
