#!/usr/bin/env python3
"""Write the SHA-256 of every file that pip may take for a pin: `lock_requirements.py [FILE ...]`.

The pins are the input: change a version in its file, then run this. Comments, `-r` lines and the order stay.
What is asked for are the wheels of CPython 3.11 for Linux on x86-64 and ARM64 with the oldest C library that
EdgeTLM runs on and with a new one; a source archive only where a package has no wheel at all. pip is asked
twice: as this machine configures it, and without any configuration, so that a file installs on both kinds of
machine. Where the first answer is a build with a version of its own (PyTorch without CUDA, 2.13.0+cpu), the
second is left out: pip prefers a file whose hash the index says, and would never take that build. The other
one is in a file of its own, for which pip is asked without configuration only.

Python's standard library and pip only. Nothing is installed, and only what has no wheel is downloaded.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

FOLDER = Path(__file__).resolve().parent.parent / "requirements"
PYTHON = "3.11"
ARCHITECTURES = ("x86_64", "aarch64")
# Of glibc 2: what apache-tvm's wheels need at least, and one that is newer than all that wheels ask for.
GLIBC_MINORS = (28, 41)
PUBLIC = ("torch-cuda.txt",)
_OLDEST_TAG = 17

_PIN = re.compile(r"^(?P<pin>[A-Za-z0-9][A-Za-z0-9._-]*==[^\s;\\]+)\s*\\?$")
_HASH = re.compile(r"^\s+--hash=sha256:[0-9a-f]{64}\s*\\?$")
# The second is what pip says where a constraint of the machine is on the same package.
_MISSING = re.compile(
    r"(?:No matching distribution found for|Cannot install) (\S+==\S+?)(?: because these package versions|$)",
    re.M,
)

Hashes = dict[str, set[str]]


class Platform(NamedTuple):
    """What decides which wheel pip takes: Linux on a processor, a version of CPython, and one of glibc 2."""

    architecture: str
    python: str
    glibc_minor: int

    def options(self) -> list[str]:
        """For pip."""
        minors = range(self.glibc_minor, _OLDEST_TAG - 1, -1)
        tags = [f"manylinux_2_{minor}_{self.architecture}" for minor in minors]
        tags.append(f"manylinux2014_{self.architecture}")
        platforms = [word for tag in tags for word in ("--platform", tag)]
        return ["--implementation", "cp", "--python-version", self.python, *platforms]

    def __str__(self) -> str:
        return f"{self.architecture}, Python {self.python}, glibc 2.{self.glibc_minor}"


class Wheel(NamedTuple):
    """A file that pip would take for a pin, and its SHA-256."""

    pin: str
    name: str
    digest: str

    @property
    def is_local(self) -> bool:
        """Whether its version is one of somebody's own (PEP 440), which no public index has."""
        return "+" in self.name.split("-")[1]


def pins_of(text: str) -> list[str]:
    """The pins of a requirements file, without what it includes.

    Raises:
        ValueError: a line is neither a comment, an included file, a pin nor a hash.
    """
    found = []
    for line in text.splitlines():
        match = _PIN.match(line)
        if match:
            found.append(match["pin"])
        elif line.strip() and not line.startswith(("#", "-r ")) and not _HASH.match(line):
            raise ValueError(f"{line!r} is no pin (name==version)")
    return found


def hashes_in(text: str) -> Hashes:
    """The hashes of each pin of a requirements file.

    Raises:
        ValueError: see `pins_of`.
    """
    found: Hashes = {pin: set() for pin in pins_of(text)}
    pin = ""
    for line in text.splitlines():
        match = _PIN.match(line)
        if match:
            pin = match["pin"]
        elif _HASH.match(line):
            found[pin].add(line.strip(" \\").removeprefix("--hash=sha256:"))
    return found


def locked(text: str, hashes: Hashes) -> str:
    """The file with the hashes of its pins."""
    lines = []
    for line in text.splitlines():
        match = _PIN.match(line)
        if match:
            entries = [f"    --hash=sha256:{digest}" for digest in sorted(hashes[match["pin"]])]
            lines += " \\\n".join([match["pin"], *entries]).splitlines()
        elif not _HASH.match(line):
            lines.append(line)
    return "\n".join(lines) + "\n"


def hashes_of(pins: Iterable[str], configured: bool) -> Hashes:
    """The hashes of all files that may be taken for each pin.

    Args:
        pins: name==version.
        configured: whether pip is also asked as this machine configures it.

    Raises:
        ValueError: a pin has no file at all.
    """
    found: Hashes = defaultdict(set)
    for batch in _without_conflicts(pins):
        for architecture in ARCHITECTURES:
            for minor in GLIBC_MINORS:
                platform = Platform(architecture, PYTHON, minor)
                print(f"{platform}: {len(batch)} pins", file=sys.stderr)
                own = wheels_for(batch, platform, True) if configured else []
                alone = {wheel.pin for wheel in own if wheel.is_local}
                public = wheels_for(batch, platform, False)
                for wheel in [*own, *(wheel for wheel in public if wheel.pin not in alone)]:
                    found[wheel.pin].add(wheel.digest)
        for pin in batch:
            if not found[pin]:
                found[pin].add(_source(pin))
    return found


def _without_conflicts(pins: Iterable[str]) -> list[list[str]]:
    """The pins in groups that have each package once: pip refuses two versions in one question."""
    groups: list[dict[str, str]] = []
    for pin in sorted(set(pins)):
        name = pin.partition("==")[0].lower()
        group = next((group for group in groups if name not in group), None)
        if group is None:
            groups.append(group := {})
        group[name] = pin
    return [list(group.values()) for group in groups]


def wheels_for(pins: Sequence[str], platform: Platform, configured: bool) -> list[Wheel]:
    """What pip would take on one kind of machine, of each pin that has a wheel there.

    Args:
        pins: each package once.
        platform: the machine.
        configured: whether pip is asked as this machine configures it.

    Raises:
        ValueError: pip answers something else, or the index says no hash.
    """
    left = list(pins)
    while left:
        with tempfile.TemporaryDirectory() as name:
            report = Path(name, "report.json")
            command = ["--dry-run", "--ignore-installed", "--no-deps", "--only-binary=:all:", "--quiet"]
            command += ["--target", name, "--report", str(report), *platform.options(), *left]
            done = _pip("install", *command, configured=configured)
            if done.returncode == 0:
                return [_wheel(entry, left) for entry in json.loads(report.read_text())["install"]]
        missing = _MISSING.findall(done.stderr)
        if not missing or missing[-1] not in left:
            raise ValueError(f"pip cannot say what it would take: {done.stderr.strip()[-400:]}")
        left.remove(missing[-1])
    return []


def _wheel(entry: dict[str, Any], pins: Sequence[str]) -> Wheel:
    """An entry of pip's report."""
    name = _normalised(entry["metadata"]["name"])
    pin = next(pin for pin in pins if _normalised(pin.partition("==")[0]) == name)
    url = urlsplit(entry["download_info"]["url"])
    path = unquote(url.path)
    digest = entry["download_info"]["archive_info"].get("hashes", {}).get("sha256")
    if digest is None:
        # Of a file on this machine pip says none.
        if url.scheme != "file":
            raise ValueError(f"{pin}: the index says no hash of {path.rpartition('/')[2]}")
        digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    return Wheel(pin, path.rpartition("/")[2], digest)


def _normalised(name: str) -> str:
    """PEP 503."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _source(pin: str) -> str:
    """The hash of a package's source archive."""
    with tempfile.TemporaryDirectory() as name:
        done = _pip("download", "--no-deps", "--no-binary=:all:", "--quiet", "--dest", name, pin)
        files = list(Path(name).iterdir())
        if done.returncode != 0 or len(files) != 1:
            raise ValueError(f"{pin} has neither wheel nor source: {done.stderr.strip()[-400:]}")
        return hashlib.sha256(files[0].read_bytes()).hexdigest()


def _pip(*arguments: str, configured: bool = True) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ)
    if not configured:
        kept = ("PIP_CERT", "PIP_DEFAULT_TIMEOUT")
        environment = {
            name: value for name, value in environment.items() if not name.startswith("PIP_") or name in kept
        }
        environment["PIP_CONFIG_FILE"] = os.devnull
    command = [sys.executable, "-m", "pip", arguments[0], "--disable-pip-version-check", *arguments[1:]]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def main(arguments: Sequence[str]) -> int:
    """Lock the files that are named, or all of them."""
    parser = argparse.ArgumentParser(description="Write the hashes of the pins into requirements files.")
    parser.add_argument("files", nargs="*", type=Path, help="requirements files, by default all")
    files = parser.parse_args(arguments).files or sorted(FOLDER.glob("*.txt"))
    texts = {file: file.read_text(encoding="utf-8") for file in files}
    try:
        for public in (False, True):
            chosen = {file: text for file, text in texts.items() if (file.name in PUBLIC) == public}
            hashes = hashes_of((pin for text in chosen.values() for pin in pins_of(text)), not public)
            for file, text in chosen.items():
                file.write_text(locked(text, hashes), encoding="utf-8")
    except ValueError as error:
        print(f"lock_requirements: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
