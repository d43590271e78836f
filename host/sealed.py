"""Files of the cache that are named by what they are made from, each with its own digest beside it.

The name alone says nothing about the bytes that lie there after a full disk, a crash or a bad sector.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

_SUFFIX = ".sha256"


def seal(made: Path, kept: Path) -> None:
    """Move a finished file to its place, its digest first: one without the other counts as missing.

    Raises:
        OSError: there is no space, or the place cannot be written.
    """
    note = made.with_name(made.name + _SUFFIX)
    note.write_text(_digest(made))
    note.replace(kept.with_name(kept.name + _SUFFIX))
    made.replace(kept)


def is_sealed(kept: Path) -> bool:
    """Whether the file is there, byte for byte as it was sealed."""
    try:
        return kept.with_name(kept.name + _SUFFIX).read_text() == _digest(kept)
    except (OSError, ValueError):
        return False


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
