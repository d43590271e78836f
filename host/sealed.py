"""Files and folders of the cache that are named by what they are made from, each with its digest beside it.

The name alone says nothing about the bytes that lie there after a full disk, a crash or a bad sector.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

_SUFFIX = ".sha256"


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
    if path.is_dir():
        return _digest_of_folder(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
                content = _digest(path) if stat.S_ISREG(mode) else ""
            lines.append(f"{path.relative_to(folder).as_posix()}\0{mode:o}\0{content}\n")
    return hashlib.sha256("".join(sorted(lines)).encode(errors="surrogateescape")).hexdigest()
