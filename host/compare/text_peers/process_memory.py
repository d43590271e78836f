"""Peak memory of a process tree, as the sum of its proportional set sizes."""

from __future__ import annotations

import threading
from types import TracebackType

import psutil

INTERVAL_S = 0.2
"""Seconds between two samples."""


class PeakMemory:
    """Samples the summed PSS of a process and all its descendants until it is left.

    Args:
        pid: the root of the tree.
    """

    def __init__(self, pid: int) -> None:
        self.peak_bytes = 0
        self._process = psutil.Process(pid)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory", daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(INTERVAL_S):
            self.peak_bytes = max(self.peak_bytes, self._sum())

    def _sum(self) -> int:
        try:
            tree = [self._process, *self._process.children(recursive=True)]
        except psutil.NoSuchProcess:
            return 0
        return sum(_pss(process) for process in tree)


def _pss(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        # It ended between the listing and the reading.
        return 0
