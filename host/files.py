"""Files that are written whole or not at all, and known by their content.

A file or folder of the cache is named by what it is made from, and has its digest beside it: the name alone
says nothing about the bytes that lie there after a full disk, a crash or a bad sector.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from device_agent.contract.manifest import MANIFEST
from host.errors import DeviceFull, UserError

_SUFFIX = ".sha256"
# Of an OSError: there is no space, no quota, or the file may not be so large.
NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a full disk into one clear error.

    Raises:
        DeviceFull: no space left where `path` is to be written.
    """
    try:
        yield
    except OSError as error:
        if error.errno in NO_SPACE:
            raise DeviceFull(f"no space left while writing {path}: free some and run again") from error
        raise


def check_output(path: Path, option: str) -> None:
    """Refuse a place for a result that cannot be written, before the work for it.

    Args:
        path: of the file or folder that is to be written; folders that are missing are made.
        option: with which the user names another place.

    Raises:
        UserError: a file lies where a folder is needed, or nothing can be written there.
        DeviceFull: no space left there.
    """
    place = path.absolute()
    folder = next((one for one in place.parents if os.path.lexists(one)), place.parent)
    if not folder.is_dir():
        raise UserError(f"{path} cannot be written: {folder} is no folder: name another place with {option}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(
            f"{path} cannot be written: you may not write in {folder}: name another place with {option}"
        )
    try:
        # Rights do not say it of every file system. The file has no name where the system has such files, and
        # is removed at once where it has not.
        with writing(path), tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(
            f"{path} cannot be written: {folder}: {error.strerror}: name another place with {option}"
        ) from error


def check_output_file(path: Path, option: str) -> None:
    """Refuse a place for a file that cannot be written, before the work for it; see `check_output`.

    Raises:
        UserError: see `check_output`; or a folder, a device or a pipe lies there.
        DeviceFull: see `check_output`.
    """
    if path.is_dir():
        raise UserError(f"{path} is a folder: name a file in it with {option}")
    if path.exists() and not path.is_file():
        # A file would take its place.
        raise UserError(f"{path} is no plain file: name one with {option}")
    check_output(path, option)


def check_output_bundle(place: Path, option: str) -> None:
    """Refuse a place for a bundle that cannot be written, before the work for it; see `check_output`.

    Args:
        place: of the directory, or of the file if it ends in `.zip`.
        option: with which the user names another place.

    Raises:
        UserError: see `check_output`; or something other than a bundle lies there.
        DeviceFull: see `check_output`.
    """
    archive = place.suffix == ".zip"
    if archive and place.exists() and not place.is_file():
        raise UserError(f"{place} exists and is no bundle: choose another place")
    if not archive and place.is_dir() and not (place / MANIFEST).is_file() and any(place.iterdir()):
        raise UserError(f"{place} contains something other than a bundle: choose another directory")
    if not archive and place.exists() and not place.is_dir():
        raise UserError(f"{place} exists and is no bundle: choose another place")
    check_output(place, option)


def partial_of(path: Path) -> Path:
    """Where a file is written before it takes its place: beside it, apart from other threads and commands."""
    return path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.part")


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A place beside a file to write its content to, which takes the file's place at the end.

    Whatever is raised before leaves the file as it was.

    Args:
        path: of the file, in a folder that exists.

    Raises:
        OSError: it cannot take the file's place.
    """
    partial = partial_of(path)
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file completely or not at all.

    Raises:
        OSError: it cannot be written.
    """
    with written_whole(path) as partial:
        partial.write_bytes(data)


def open_plain(path: Path) -> BinaryIO:
    """Open a file where another process may have put anything, such as a link or a pipe.

    Raises:
        OSError: it cannot be read, or is no plain file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "no plain file", str(path))
    return os.fdopen(descriptor, "rb")


def file_hash(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def seal(made: Path, kept: Path) -> None:
    """Move a finished file or folder to its place, its digest first: one without the other counts as missing.

    Raises:
        OSError: there is no space, or the place cannot be written.
    """
    note = made.with_name(made.name + _SUFFIX)
    note.write_text(_digest(made))
    note.replace(kept.with_name(kept.name + _SUFFIX))
    made.replace(kept)


def is_sealed(kept: Path) -> bool:
    """Whether the file or folder is there, byte for byte as it was sealed."""
    try:
        return kept.with_name(kept.name + _SUFFIX).read_text() == _digest(kept)
    except (OSError, ValueError):
        return False


def _digest(path: Path) -> str:
    return _digest_of_folder(path) if path.is_dir() else file_hash(path)


def _digest_of_folder(folder: Path) -> str:
    """SHA-256 of what lies below a folder: names, kinds, permissions, targets of links and contents."""
    lines = []
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent, name)
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                content = str(path.readlink())
            else:
                content = file_hash(path) if stat.S_ISREG(mode) else ""
            lines.append(f"{path.relative_to(folder).as_posix()}\0{mode:o}\0{content}\n")
    return hashlib.sha256("".join(sorted(lines)).encode(errors="surrogateescape")).hexdigest()
