"""Zips of sealed files: a manifest names every file with its hash, and nothing lies beside them.

Whatever an archive says of its members (names, links, sizes) is held against the manifest before one of them
is unpacked, and no member is written to a place that the archive names.
"""

from __future__ import annotations

import errno
import hashlib
import stat
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from device_agent.contract.limits import LIMITS
from device_agent.contract.manifest import MANIFEST, SIGNATURE, ContractError, FileEntry
from device_agent.contract.signing import BundleSignature, check_signature, parse_signature
from device_agent.contract.text import printable

_CHUNK_BYTES = 1 << 20
_ENCRYPTED = 1
# As `pack` writes them; other methods are refused before their libraries see the data.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# Whatever zipfile and zlib raise for a damaged archive, or for one that they cannot read.
DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError, LookupError, RuntimeError),
    *(NotImplementedError, ValueError, OverflowError),
)
# And NumPy beside them for its arrays: it takes a header apart as text of Python.
DAMAGED_ARRAYS = (*DAMAGED, AttributeError, MemoryError, TypeError, SyntaxError, tokenize.TokenError)


@dataclass(frozen=True)
class Members:
    """An archive's members, checked but for the contents of the files.

    Attributes:
        manifest: its bytes.
        signature: which is that of the manifest; None where there is none. Whether it is trusted is another
            question.
        files: that the manifest names, which are all that the archive holds beside these two.
    """

    manifest: bytes
    signature: BundleSignature | None
    files: Mapping[str, FileEntry]

    @property
    def version(self) -> str:
        """The SHA-256 of the manifest."""
        return hashlib.sha256(self.manifest).hexdigest()


def is_archive(path: Path) -> bool:
    """Whether a file begins to be read as a zip; one of several disks, which `reading` refuses, does."""
    try:
        return zipfile.is_zipfile(path)
    except zipfile.BadZipFile:
        return True


@contextmanager
def reading(path: Path, what: str) -> Iterator[zipfile.ZipFile]:
    """An open archive.

    Args:
        path: of the file.
        what: it is, for messages.

    Raises:
        ContractError: it is no zip, or a damaged one; also whatever the caller's work meets of the damage.
    """
    again = f"copy or make the {what} again"
    try:
        if not path.is_file() or not zipfile.is_zipfile(path):
            raise ContractError(f"it is no archive, or a part of one: {again}")
        with zipfile.ZipFile(path) as archive:
            yield archive
    except ContractError:
        raise
    except DAMAGED as error:
        raise ContractError(f"the archive is damaged ({printable(error, 100)}): {again}") from error
    except OSError as error:
        # A place before the file's beginning, which a damaged directory of the archive names.
        if error.errno != errno.EINVAL:
            raise
        raise ContractError(f"the archive is damaged ({printable(error, 100)}): {again}") from error


def check_members(
    archive: zipfile.ZipFile, path: Path, what: str, files_of: Callable[[bytes], Mapping[str, FileEntry]]
) -> Members:
    """Check manifest, signature and names of an archive, of which nothing has been unpacked.

    Args:
        archive: open.
        path: of its file.
        what: it is, for messages.
        files_of: checks a manifest and gives the files that it names.

    Raises:
        ContractError: manifest or signature is damaged, or the archive holds other files.
    """
    bounds = LIMITS.bundle
    names = archive.namelist()
    if len(names) > bounds.files + 2 or len(set(names)) != len(names):
        raise ContractError(
            f"the archive holds {len(names)} files, some of them twice or more than a {what} has"
        )
    if any(one.compress_type not in _METHODS or one.flag_bits & _ENCRYPTED for one in archive.infolist()):
        raise ContractError(f"the archive is encrypted, or packed in another way than a {what}'s")
    for one in archive.infolist():
        if stat.S_ISLNK(one.external_attr >> 16):
            raise ContractError(f"{printable(one.filename)} is a symbolic link")
    data = _small_member(archive, MANIFEST)
    files = files_of(data)
    signature = None
    if SIGNATURE in names:
        signature = parse_signature(_small_member(archive, SIGNATURE))
        check_signature(data, signature)
    expected = {MANIFEST, *files} | ({SIGNATURE} & set(names))
    for name in sorted(expected - set(names)):
        raise ContractError(f"it lacks {name}: copy or make the {what} again")
    for name in sorted(set(names) - expected):
        raise ContractError(f"it holds {printable(name)}, which its manifest does not name")
    for name, entry in files.items():
        if archive.getinfo(name).file_size != entry.size:
            raise _other_content(name, what)
    total, packed = sum(entry.size for entry in files.values()), path.stat().st_size
    if total > bounds.unpacked_bytes + bounds.unpacked_ratio * packed:
        raise ContractError(
            f"its {packed} bytes unpack to {total}, more than {bounds.unpacked_ratio} times as much:"
            " if that is right, unpack it yourself and give the directory"
        )
    return Members(data, signature, files)


def copy_member(
    archive: zipfile.ZipFile, name: str, entry: FileEntry, target: IO[bytes] | None, what: str
) -> None:
    """Read a file of an archive, and write it somewhere, as long as it agrees with the manifest.

    Raises:
        ContractError: it is not.
    """
    hasher = hashlib.sha256()
    size = 0
    with archive.open(name) as file:
        while chunk := file.read(_CHUNK_BYTES):
            size += len(chunk)
            if size > entry.size:
                break
            hasher.update(chunk)
            if target is not None:
                target.write(chunk)
    if size != entry.size or hasher.hexdigest() != entry.sha256:
        raise _other_content(name, what)


def copy_seal(archive: zipfile.ZipFile, folder: Path) -> None:
    """Write the manifest of checked members, and the signature where there is one, into a folder."""
    for name in (MANIFEST, SIGNATURE):
        if name in archive.namelist():
            (folder / name).write_bytes(_small_member(archive, name))


def _other_content(name: str, what: str) -> ContractError:
    return ContractError(f"{name} does not match the hash in the manifest: copy or make the {what} again")


def _small_member(archive: zipfile.ZipFile, name: str) -> bytes:
    most = LIMITS.bundle.manifest_bytes
    with archive.open(name) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise ContractError(f"{name} has more than {most} bytes")
    return data
