"""Native executors that the tests share: built once, kept by content below the repository."""

from __future__ import annotations

import functools
from pathlib import Path

from host.payload.native import native_executor

FOLDER = Path(__file__).resolve().parents[1] / ".cache" / "native"


@functools.cache
def executor_for(architecture: str) -> Path:
    """The executable for an architecture; several processes of the tests may ask at once."""
    return native_executor(architecture, cache=FOLDER)
