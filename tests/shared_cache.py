"""What is slow to make and the same for every test: native executors and emulated root file systems.

They are kept by content below the repository, where the next run finds them; several processes of the tests
may ask at once, and one makes what the others wait for. `python -m tests.shared_cache` makes the executors.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from host.emulation.user import root
from host.payload.native import native_executor

SHARED = Path(__file__).resolve().parents[1] / ".cache"
FOLDER = SHARED / "edgetlm" / "native"
ARCHITECTURES = ("x86_64", "riscv64", "aarch64")


@functools.cache
def executor_for(architecture: str) -> Path:
    """The native executor for an architecture."""
    return native_executor(architecture, cache=FOLDER)


@functools.cache
def root_of(architecture: str) -> Path:
    """The root file system of an emulated architecture."""
    with _user_cache(SHARED):
        return root(architecture)


@contextmanager
def _user_cache(folder: Path) -> Iterator[None]:
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["XDG_CACHE_HOME"]
        else:
            os.environ["XDG_CACHE_HOME"] = before


if __name__ == "__main__":
    for name in ARCHITECTURES:
        print(executor_for(name))
