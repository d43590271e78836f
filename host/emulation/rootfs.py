"""Files of a small Debian for another architecture, made from its packages without running any of them."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from host.emulation.tools import tool
from host.errors import DeviceError
from host.files import is_sealed, seal
from host.places import cache_root

MIRROR_VARIABLE = "EDGETLM_DEBIAN_MIRROR"
# Of the archives that mmdebstrap takes where no mirror is given, the release itself: its updates are in
# flux, and what is made from them would not be the same on the next host.
_RELEASE_ALONE = """--setup-hook=sed -i '/-updates\\|-security/d' "$1"/etc/apt/sources.list"""
# apt's message about a mirror whose files are of different days.
_IN_FLUX = "Mirror sync in progress"
MIRROR_IN_FLUX = "Debian's mirror is being updated"
_MAKING_S = 900.0
_DEBIAN = {"aarch64": "arm64", "riscv64": "riscv64"}
# For people and translations; what is run here needs none of it.
_NEVER = ("usr/share/doc/", "usr/share/man/", "usr/share/locale/", "usr/share/info/", "usr/share/lintian/")


@dataclass(frozen=True)
class Recipe:
    """The content of a root file system.

    Attributes:
        architecture: "aarch64" or "riscv64".
        suite: Debian's release.
        packages: and what they depend on.
        left_out: beginnings of paths that are not kept.
        version: raised when the same packages are made into something else.
    """

    architecture: str
    suite: str
    packages: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    version: int = 1

    @property
    def checksum(self) -> str:
        """Of all that the result depends on, apart from Debian's own updates."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]

    def wants(self, name: str) -> bool:
        """Whether a file is kept; `name` has no leading slash."""
        return not name.startswith((*_NEVER, *self.left_out))


def made(name: str, recipe: Recipe, make: Callable[[tarfile.TarFile, Path], None]) -> Path:
    """The folder made from a recipe's files; taken from the cache where it was made before.

    Args:
        name: of what is made, the beginning of the folder's.
        recipe: its packages.
        make: is given the archive with the packages' files and an empty folder to fill.

    Raises:
        UserError: a program is missing.
        DeviceError: the packages cannot be fetched or there is no space.
    """
    folder = cache_root() / "emulation" / f"{name}-{recipe.architecture}-{recipe.checksum}"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Others that want the same wait for the one that makes it.
        with folder.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if is_sealed(folder):
                return folder
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".partial-") as scratch:
                result = Path(scratch) / "made"
                result.mkdir()
                with _packages(recipe, Path(scratch)) as archive:
                    make(archive, result)
                # What is there was cut short or altered since; what is kept here is booted.
                shutil.rmtree(folder, ignore_errors=True)
                seal(result, folder)
    except OSError as error:
        raise DeviceError(
            f"{folder} cannot be made: {error}; free some space or set XDG_CACHE_HOME"
        ) from error
    return folder


@contextmanager
def _packages(recipe: Recipe, scratch: Path) -> Iterator[tarfile.TarFile]:
    path = scratch / "packages.tar"
    mirror = os.environ.get(MIRROR_VARIABLE, "")
    where = mirror or "mmdebstrap's mirror"
    # Nothing of the packages is run, so neither an emulator nor a privilege is needed; mmdebstrap has
    # a mode of its own for root.
    mode = "root" if os.geteuid() == 0 else "unshare"
    command = [str(tool("mmdebstrap")), f"--mode={mode}", "--variant=extract", "--format=tar"]
    command += [f"--architectures={_DEBIAN[recipe.architecture]}", f"--include={','.join(recipe.packages)}"]
    command += [] if mirror else [_RELEASE_ALONE]
    try:
        done = subprocess.run(
            [*command, recipe.suite, str(path), *([mirror] if mirror else [])],
            capture_output=True,
            text=True,
            timeout=_MAKING_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise DeviceError(f"Debian's packages from {where} took too long: try again") from error
    if done.returncode and _IN_FLUX in done.stderr:
        raise DeviceError(
            f"{MIRROR_IN_FLUX}: its index of {recipe.suite} is not what it announces; try again later"
        )
    if done.returncode:
        # The first error says what went wrong, the last one that something did.
        said = [line for line in done.stderr.splitlines() if line.startswith("E:")]
        reason = said[0] if said else f"mmdebstrap ended with {done.returncode}"
        raise DeviceError(
            f"Debian's packages for {recipe.architecture} cannot be had from {where} ({reason}); connect to"
            f" it or set {MIRROR_VARIABLE}, once: what was made is kept"
        )
    with tarfile.open(path) as archive:
        yield archive


def unpack(archive: tarfile.TarFile, recipe: Recipe, folder: Path) -> None:
    """Write the wanted files below a folder: no devices, no owners, links kept inside."""
    for entry in archive:
        name = entry.name.removeprefix("./")
        if not name or entry.isdev() or not recipe.wants(name + ("/" if entry.isdir() else "")):
            continue
        # An absolute link would lead out of the folder, to this machine's own files.
        if entry.issym() and entry.linkname.startswith("/"):
            entry.linkname = os.path.relpath(entry.linkname, "/" + os.path.dirname(name))  # noqa: PTH120
        entry.name = name
        entry.mode |= 0o700 if entry.isdir() else 0o600
        archive.extract(entry, folder, filter="tar")


def size_bytes(folder: Path) -> int:
    """Bytes of all files of a folder."""
    return sum(path.lstat().st_size for path in folder.rglob("*"))


def forget(folder: Path) -> None:
    """Remove what was made, which is made again when it is wanted next."""
    shutil.rmtree(folder, ignore_errors=True)
