"""Peak memory of a process tree, as the sum of its proportional set sizes."""

from __future__ import annotations

import threading
from types import TracebackType

import psutil

INTERVAL_S = 0.2
"""Seconds between two samples."""


class PeakMemory:
    """Samples the summed PSS of a process and all its descendants until it is left.

    Attributes:
        peak_bytes: the largest sum.
        at_peak: command line and bytes of each process of that sample.

    Args:
        pid: the root of the tree.
        interval_s: between two samples.
    """

    def __init__(self, pid: int, interval_s: float = INTERVAL_S) -> None:
        self.peak_bytes = 0
        self.at_peak: tuple[tuple[tuple[str, ...], int], ...] = ()
        self._interval_s = interval_s
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
        while not self._done.wait(self._interval_s):
            sizes = self._sizes()
            if (total := sum(sizes.values())) > self.peak_bytes:
                self.peak_bytes = total
                self.at_peak = tuple((_words(process), size) for process, size in sizes.items())

    def _sizes(self) -> dict[psutil.Process, int]:
        try:
            tree = [self._process, *self._process.children(recursive=True)]
        except psutil.NoSuchProcess:
            return {}
        return {process: _pss(process) for process in tree}


def _pss(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        # It ended between the listing and the reading.
        return 0


def _words(process: psutil.Process) -> tuple[str, ...]:
    try:
        return tuple(process.cmdline())
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return ()
