"""Quieting native code: TVM's C++ writes warnings straight to the standard error descriptor."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Iterator

from host.errors import ImportFailed


@contextlib.contextmanager
def quiet() -> Iterator[list[ImportFailed]]:
    """Nothing that native code says within reaches the terminal.

    A frontend that fails leaves half-built functions behind, which complain when they are freed; they are
    freed before the block ends. So the block must not raise: it puts errors into the list that it is given.
    """
    failures: list[ImportFailed] = []
    sys.stderr.flush()
    kept = os.dup(2)
    sink = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(sink, 2)
        yield failures
    finally:
        gc.collect()
        os.dup2(kept, 2)
        os.close(kept)
        os.close(sink)
