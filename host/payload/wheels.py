"""Parts of wheels for another machine: downloaded from the package index once, and kept.

Nothing is ever downloaded by a board, and nothing of another machine is run here: pip chooses the wheels by
the tags of the platform (PEP 425, PEP 600) and this module unpacks what is wanted of them.

A board runs what it is sent, so a wheel is taken for its SHA-256 alone, which `host.payload.pins` has. The
wheel is kept beside what was unpacked, and both are read and hashed before each use: the wheel against the
pin, the files against the hashes in the wheel's own RECORD. What differs is thrown away and fetched again.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from host.errors import PayloadError
from host.files import file_hash
from host.payload.licences import is_licence
from host.payload.pins import pinned
from host.payload.unpacking import WheelError, is_unpacked, unpack
from host.places import cache_root

# Raised when the meaning of a kept folder changes.
_FORMAT = 3
# PEP 600 begins with glibc 2.17 on these machines (manylinux2014 is its older name).
_OLDEST_GLIBC = 17
_DOWNLOAD_S = 900.0


@dataclass(frozen=True)
class Platform:
    """The properties of a machine that decide which wheels run there.

    Attributes:
        architecture: "aarch64" or "x86_64".
        python: CPython's version, major and minor.
        glibc: the C library's version, major and minor.
    """

    architecture: str
    python: tuple[int, int]
    glibc: tuple[int, int]

    @property
    def tags(self) -> tuple[str, ...]:
        """Platform tags of wheels that run there, newest first."""
        newest = self.glibc[1] if self.glibc[0] == 2 else _OLDEST_GLIBC
        names = [f"manylinux_2_{minor}" for minor in range(newest, _OLDEST_GLIBC - 1, -1)]
        return tuple(f"{name}_{self.architecture}" for name in [*names, "manylinux2014"])

    def __str__(self) -> str:
        python = ".".join(map(str, self.python))
        return f"{self.architecture}, Python {python}, glibc {'.'.join(map(str, self.glibc))}"


@dataclass(frozen=True)
class Part:
    """The files that are used of one distribution.

    Attributes:
        requirement: name and exact version, "numpy==2.4.6".
        keep: patterns of the files that are wanted; "*" also stands for "/".
        drop: patterns of files that are not, though `keep` has them.
        any_python: the distribution is the same for every Python, so that it is kept once.
    """

    requirement: str
    keep: tuple[str, ...] = ("*",)
    drop: tuple[str, ...] = ()
    any_python: bool = False

    def wants(self, name: str) -> bool:
        """Whether a file of the wheel is wanted; its licences always are."""
        return is_licence(name) or (_matches(name, self.keep) and not _matches(name, self.drop))


def unpacked(part: Part, platform: Platform) -> Path:
    """The folder with the wanted files of a distribution for a platform.

    It is downloaded where this host has not got it yet, or has it no longer as it came.

    Raises:
        PayloadError: there is no such wheel, none of its hash, or the package index cannot be reached.
    """
    digests = pinned(part.requirement)
    key = _key(part, platform)
    folder = cache_root() / "wheels" / f"{part.requirement.replace('==', '-')}-{platform.architecture}-{key}"
    if _is_whole(folder, part, digests):
        return folder / "files"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".partial-") as name:
            made = Path(name) / "made"
            made.mkdir()
            wheel = _download(part.requirement, digests, _asked(part, platform), made)
            unpack(wheel, part.wants, made / "files")
            # Another process may have made the same meanwhile, and be reading it.
            if not _is_whole(folder, part, digests):
                # A damaged one may be in the way.
                shutil.rmtree(folder, ignore_errors=True)
                made.replace(folder)
    except WheelError as error:
        raise PayloadError(f"{error}: try another package index") from error
    except OSError as error:
        if _is_whole(folder, part, digests):
            return folder / "files"
        raise PayloadError(
            f"{part.requirement} cannot be kept in {folder.parent}: {error.strerror}; free some space or set"
            " XDG_CACHE_HOME"
        ) from error
    return folder / "files"


def _asked(part: Part, platform: Platform) -> Platform:
    # Libraries alone run beside any Python, also one that is too old for the rest of the distribution.
    return replace(platform, python=sys.version_info[:2]) if part.any_python else platform


def _key(part: Part, platform: Platform) -> str:
    python = None if part.any_python else platform.python
    recipe = [_FORMAT, part.requirement, part.keep, part.drop, platform.architecture, python, platform.tags]
    return hashlib.sha256(json.dumps(recipe).encode()).hexdigest()[:16]


def _download(requirement: str, digests: frozenset[str], platform: Platform, folder: Path) -> Path:
    hashes = " ".join(f"--hash=sha256:{digest}" for digest in sorted(digests))
    with tempfile.NamedTemporaryFile("w", suffix=".txt", dir=folder) as wanted:
        wanted.write(f"{requirement} {hashes}\n")
        wanted.flush()
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        command += ["--no-deps", "--only-binary=:all:", "--implementation", "cp", "--dest", str(folder)]
        command += ["--python-version", ".".join(map(str, platform.python))]
        command += [word for tag in platform.tags for word in ("--platform", tag)]
        command += ["--require-hashes", "--requirement", wanted.name]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_DOWNLOAD_S, check=False)
        except subprocess.TimeoutExpired as error:
            raise PayloadError(
                f"downloading {requirement} for {platform} took too long: try again"
            ) from error
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode == 0 and len(wheels) == 1 and file_hash(wheels[0]) in digests:
        return wheels[0]
    if done.returncode == 0 or "DO NOT MATCH THE HASHES" in done.stderr:
        raise PayloadError(
            f"the wheel of {requirement} for {platform} is not the one that this release pins by its hash, so"
            " it is not sent to a board: use another package index, or a version of edgetlm that pins it"
        )
    said = [line for line in done.stderr.splitlines() if line.startswith("ERROR") or "No module" in line]
    reason = said[-1].removeprefix("ERROR: ") if said else f"pip ended with {done.returncode}"
    if "No matching distribution" in reason and _unreachable(done.stderr):
        reason = "the package index cannot be reached"
    raise PayloadError(
        f"no wheel of {requirement} for {platform}: {reason}; connect this host to a package index once, what"
        " is downloaded is kept"
    )


def _unreachable(said: str) -> bool:
    # pip reports a refused or unresolved connection as warnings, and then that it found nothing.
    return "connection" in said.lower() or "Retrying" in said


def _is_whole(folder: Path, part: Part, digests: frozenset[str]) -> bool:
    """Whether a kept folder has a pinned wheel, and of its wanted files each one as it came."""
    try:
        wheels = [path for path in folder.glob("*.whl") if not path.is_symlink()]
        if len(wheels) != 1 or file_hash(wheels[0]) not in digests:
            return False
        return is_unpacked(wheels[0], part.wants, folder / "files")
    except (OSError, WheelError):
        return False


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
