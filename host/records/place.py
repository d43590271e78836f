"""Where records are, by their name alone: nothing is opened, and no database library is loaded."""

from __future__ import annotations

from pathlib import Path


def is_shared(records: str | Path) -> bool:
    """Whether records are a server's, which several hosts share."""
    text = str(records)
    return not isinstance(records, Path) and "://" in text and not text.startswith("sqlite")


def is_there(records: str | Path) -> bool:
    """Whether there may be records: a server's, or a file that exists."""
    return not isinstance(records, Path) or records.is_file()
