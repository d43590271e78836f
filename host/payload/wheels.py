"""Parts of wheels for another machine: downloaded from the package index once, and kept unpacked.

Nothing is ever downloaded by a board, and nothing of another machine is run here: pip chooses the wheels by
the tags of the platform (PEP 425, PEP 600) and this module unpacks what is wanted of them.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from host.errors import PayloadError
from host.places import cache_root

# Raised when the meaning of an unpacked folder changes.
_FORMAT = 1
# PEP 600 begins with glibc 2.17 on these machines (manylinux2014 is its older name).
_OLDEST_GLIBC = 17
_DOWNLOAD_S = 900.0


@dataclass(frozen=True)
class Platform:
    """What decides which wheels run on a machine.

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
    """What is wanted of one distribution.

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
        """Whether a file of the wheel is wanted."""
        return _matches(name, self.keep) and not _matches(name, self.drop)


def unpacked(part: Part, platform: Platform) -> Path:
    """The folder with the wanted files of a distribution for a platform.

    It is downloaded where this host has not got it yet.

    Raises:
        PayloadError: there is no such wheel, or the package index cannot be reached.
    """
    key = _key(part, platform)
    folder = cache_root() / "wheels" / f"{part.requirement.replace('==', '-')}-{platform.architecture}-{key}"
    if _is_whole(folder):
        return folder / "files"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".making-") as name:
            scratch = Path(name)
            wheel = _download(part.requirement, _asked(part, platform), scratch)
            made = scratch / "made"
            _unpack(wheel, part, made / "files")
            _seal(made)
            # Another process may have made the same meanwhile, or a damaged one is in the way.
            shutil.rmtree(folder, ignore_errors=True)
            made.replace(folder)
    except OSError as error:
        if _is_whole(folder):
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


def _download(requirement: str, platform: Platform, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary=:all:", "--implementation", "cp", "--dest", str(folder)]
    command += ["--python-version", ".".join(map(str, platform.python))]
    command += [word for tag in platform.tags for word in ("--platform", tag)]
    try:
        done = subprocess.run(
            [*command, requirement], capture_output=True, text=True, timeout=_DOWNLOAD_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise PayloadError(f"downloading {requirement} for {platform} took too long: try again") from error
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode == 0 and wheels:
        return wheels[0]
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


def _unpack(wheel: Path, part: Part, folder: Path) -> None:
    folder.mkdir(parents=True)
    try:
        with zipfile.ZipFile(wheel) as archive:
            for entry in archive.infolist():
                if not entry.is_dir() and part.wants(entry.filename):
                    target = Path(archive.extract(entry, folder))
                    # What a wheel says of modes is for installers; libraries need no execute bit.
                    target.chmod(0o644)
    except (zipfile.BadZipFile, KeyError) as error:
        raise PayloadError(f"{wheel.name} is damaged ({error}): try again") from error


def _seal(folder: Path) -> None:
    names = {str(path.relative_to(folder)): path.stat().st_size for path in _files(folder / "files")}
    (folder / "whole.json").write_text(json.dumps(names))


def _is_whole(folder: Path) -> bool:
    try:
        names = json.loads((folder / "whole.json").read_text())
        return all((folder / name).stat().st_size == size for name, size in names.items())
    except (OSError, ValueError):
        return False


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
