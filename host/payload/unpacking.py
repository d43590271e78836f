"""Files out of a wheel: bounded, inside their folder, and each with the hash in the wheel's RECORD."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

from host.files import file_hash

# The largest wheel that is unpacked here has 5,000 files and 0.3 GB.
MAX_FILES = 50_000
MAX_BYTES = 2 << 30
_MAX_RECORD_BYTES = 16 << 20
_CHUNK = 1 << 20


class WheelError(ValueError):
    """A file that is no wheel, or a wheel with an entry that is not to be unpacked; one line."""


def unpack(wheel: Path, wants: Callable[[str], bool], folder: Path) -> None:
    """Write the wanted files of a wheel below a new folder.

    Raises:
        WheelError: damaged, too large, a name that leads elsewhere, or a file of another hash than in RECORD.
        OSError: they cannot be written.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            record = _record(wheel.name, archive)
            left = MAX_BYTES
            folder.mkdir(parents=True)
            for entry in _wanted(wheel.name, archive, wants):
                left -= _write(wheel.name, archive, entry, folder, record.get(entry.filename), left)
    except (zipfile.BadZipFile, KeyError, EOFError, NotImplementedError, RuntimeError) as error:
        raise WheelError(f"{wheel.name} is damaged ({error})") from error


def is_unpacked(wheel: Path, wants: Callable[[str], bool], folder: Path) -> bool:
    """Whether a folder has exactly the wanted files of a wheel that is trusted, each as it is in it.

    Raises:
        WheelError: the wheel is damaged.
        OSError: something cannot be read.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            record = _record(wheel.name, archive)
            names = {entry.filename for entry in _wanted(wheel.name, archive, wants)}
            unhashed = {name: archive.read(name) for name in names if record.get(name) is None}
    except (zipfile.BadZipFile, KeyError, EOFError, NotImplementedError, RuntimeError) as error:
        raise WheelError(f"{wheel.name} is damaged ({error})") from error
    found = {}
    for path in folder.rglob("*"):
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            continue
        if not stat.S_ISREG(mode):
            return False
        found[path.relative_to(folder).as_posix()] = path
    if set(found) != names:
        return False
    return all(
        path.read_bytes() == unhashed[name] if name in unhashed else _hash_of(path) == record[name]
        for name, path in found.items()
    )


def _wanted(wheel: str, archive: zipfile.ZipFile, wants: Callable[[str], bool]) -> list[zipfile.ZipInfo]:
    entries = archive.infolist()
    if len(entries) > MAX_FILES:
        raise WheelError(f"{wheel} has {len(entries)} entries, at most {MAX_FILES} are unpacked")
    names = [entry.filename for entry in entries]
    if len(set(names)) != len(names):
        raise WheelError(f"{wheel} has two entries of one name")
    for entry in entries:
        _check(wheel, entry)
    return [entry for entry in entries if not entry.is_dir() and wants(entry.filename)]


def _check(wheel: str, entry: zipfile.ZipInfo) -> None:
    """Refuses what would lie outside of the folder, and what is neither file nor folder."""
    name = entry.filename
    parts = name.removesuffix("/").split("/")
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if (
        any(part in ("", ".", "..") for part in parts)
        or "\\" in name
        or not name.isprintable()
        or kind not in (0, stat.S_IFREG, stat.S_IFDIR)
    ):
        raise WheelError(f"{wheel} has an entry that is not unpacked: {name[:200]!r}")


def _write(
    wheel: str, archive: zipfile.ZipFile, entry: zipfile.ZipInfo, folder: Path, digest: str | None, left: int
) -> int:
    """Write one file; returns its size. The sizes in the archive are not relied on."""
    target = folder / entry.filename
    target.parent.mkdir(parents=True, exist_ok=True)
    size, hasher = 0, hashlib.sha256()
    with archive.open(entry) as source, target.open("xb") as output:
        while chunk := source.read(_CHUNK):
            size += len(chunk)
            if size > left:
                raise WheelError(f"{wheel} has more than {MAX_BYTES} bytes in its files")
            hasher.update(chunk)
            output.write(chunk)
    # The modes in a wheel are for installers; libraries need no execute bit.
    target.chmod(0o644)
    if digest is not None and _text(hasher.digest()) != digest:
        raise WheelError(f"{wheel}: {entry.filename} has another hash than the wheel's RECORD says")
    return size


def _record(wheel: str, archive: zipfile.ZipFile) -> dict[str, str]:
    """SHA-256 by name, as the wheel's RECORD has it (unpadded URL-safe base64); it leaves itself out."""
    names = [
        name for name in archive.namelist() if name.endswith(".dist-info/RECORD") and name.count("/") == 1
    ]
    if len(names) != 1:
        raise WheelError(f"{wheel} has no RECORD of its files")
    with archive.open(names[0]) as file:
        raw = file.read(_MAX_RECORD_BYTES + 1)
    if len(raw) > _MAX_RECORD_BYTES:
        raise WheelError(f"{wheel} has a RECORD of more than {_MAX_RECORD_BYTES} bytes")
    try:
        rows = list(csv.reader(io.StringIO(raw.decode())))
    except (UnicodeDecodeError, csv.Error) as error:
        raise WheelError(f"{wheel} has a RECORD that cannot be read ({error})") from error
    return {
        row[0]: row[1].removeprefix("sha256=")
        for row in rows
        if len(row) == 3 and row[1].startswith("sha256=")
    }


def _hash_of(path: Path) -> str:
    return _text(bytes.fromhex(file_hash(path)))


def _text(digest: bytes) -> str:
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
