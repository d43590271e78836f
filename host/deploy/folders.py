"""Folders that are made for a result, and removed if there is no result."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path


def make_folders(folder: Path) -> tuple[Path, ...]:
    """Make a folder with its parents; returns those that were not there, innermost first."""
    missing = tuple(one for one in (folder, *folder.parents) if not one.exists())
    folder.mkdir(parents=True, exist_ok=True)
    return missing


def remove_empty(folders: Sequence[Path]) -> None:
    """Remove folders, innermost first, up to the first that is not empty."""
    with contextlib.suppress(OSError):
        for folder in folders:
            folder.rmdir()
