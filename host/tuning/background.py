"""Where the work beside the device runs: in a thread of its own, or in turn with the measurements."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, TypeVar

# Niceness of work that gives way to measurements on the same machine.
GENTLE = 15

T = TypeVar("T")


class Stage(Protocol):
    """Does one piece of work after the other."""

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Begin a piece of work."""

    def close(self) -> None:
        """Drop what has not begun and wait for what has."""


class InTurn:
    """Does work at once: nothing else runs meanwhile."""

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Do it and return it done."""
        future: Future[T] = Future()
        future.set_result(work())
        return future

    def close(self) -> None:
        """Nothing is left to do."""


class Beside:
    """Does work in a thread, whose compilations and networks run outside of the interpreter lock.

    Args:
        gentle: give way to measurements on the same machine.
    """

    def __init__(self, gentle: bool) -> None:
        self._executor = ThreadPoolExecutor(1, "tuning", give_way if gentle else None)

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Begin it when what was submitted before is done."""
        return self._executor.submit(work)

    def close(self) -> None:
        """Drop what has not begun and wait for what has."""
        self._executor.shutdown(wait=True, cancel_futures=True)


def give_way() -> None:
    """Lower the priority of the present thread, where the system has priorities of threads."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), GENTLE)


def stage_for(beside: bool, gentle: bool) -> Stage:
    """How work runs beside the device; see `host.tuning.loop.TuneOptions`."""
    return Beside(gentle) if beside else InTurn()
