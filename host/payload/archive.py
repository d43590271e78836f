"""Folders as archives that are the same on every host: sorted, without times, owners and process umasks."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, cast

_EXECUTABLE = 0o100
_LEVEL = 6


def files_below(folder: Path) -> dict[str, Path]:
    """All files of a folder by their path in it, with "/" between the parts, in order."""
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return dict(sorted(found.items()))


def write_tar(files: Mapping[str, Path], output: IO[bytes]) -> None:
    """Write files as an uncompressed tar archive (POSIX ustar with PAX names).

    Args:
        files: where each lies, by its name in the archive.
        output: what takes the bytes.
    """
    with tarfile.open(fileobj=output, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for name, path in sorted(files.items()):
            status = path.stat()
            entry = tarfile.TarInfo(name)
            entry.size = status.st_size
            entry.mode = 0o755 if status.st_mode & _EXECUTABLE else 0o644
            with path.open("rb") as file:
                archive.addfile(entry, file)


def content_hash(files: Mapping[str, Path]) -> str:
    """SHA-256 of the uncompressed archive of files: of their names, modes and contents alone."""
    hasher = _Hasher()
    write_tar(files, cast("IO[bytes]", hasher))
    return hasher.hexdigest()


def compressed(files: Mapping[str, Path]) -> bytes:
    """Files as a tar.gz archive, for what is small."""
    plain = io.BytesIO()
    write_tar(files, plain)
    return gzip.compress(plain.getvalue(), _LEVEL, mtime=0)


def write_compressed(files: Mapping[str, Path], target: Path) -> None:
    """Write files as a tar.gz archive."""
    with (
        target.open("wb") as file,
        gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0, compresslevel=_LEVEL) as stream,
    ):
        write_tar(files, cast("IO[bytes]", stream))


def total_bytes(files: Iterable[Path]) -> int:
    """Sum of the sizes of files."""
    return sum(path.stat().st_size for path in files)


class _Hasher:
    """A stream that keeps only the hash of what is written to it."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def write(self, data: bytes, /) -> int:
        self._hash.update(data)
        return len(data)

    def hexdigest(self) -> str:
        return self._hash.hexdigest()
