"""How the host works while the device measures: in a separate thread, or in turn with the measurements."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, TypeVar

# Niceness of work that gives way to measurements on the same machine.
LOW_PRIORITY = 15

T = TypeVar("T")


class WorkExecutor(Protocol):
    """Does one piece of work after the other."""

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Start a piece of work; the future has its result or its exception."""

    def close(self) -> None:
        """Drop work that has not begun and wait for work that has."""


class ForegroundExecutor:
    """Does work at once, in the calling thread."""

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Do the work and return a future that is done."""
        future: Future[T] = Future()
        future.set_result(work())
        return future

    def close(self) -> None:
        """Nothing is left to do."""


class BackgroundExecutor:
    """Does work in a thread, whose compilations and networks run outside of the interpreter lock.

    Args:
        low_priority: whether measurements run on the same machine, so that the thread has a low priority.
    """

    def __init__(self, low_priority: bool) -> None:
        self._executor = ThreadPoolExecutor(1, "tuning", lower_priority if low_priority else None)

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Begin it when earlier work is done."""
        return self._executor.submit(work)

    def close(self) -> None:
        """Drop work that has not begun and wait for work that has."""
        self._executor.shutdown(wait=True, cancel_futures=True)


def lower_priority() -> None:
    """Lower the priority of the current thread, if the system has priorities of threads."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOW_PRIORITY)


def executor_for(concurrent: bool, low_priority: bool) -> WorkExecutor:
    """How the host works while the device measures; see `host.tuning.options.TuneOptions`."""
    return BackgroundExecutor(low_priority) if concurrent else ForegroundExecutor()
