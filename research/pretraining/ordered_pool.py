"""Work by number, spread over processes, with the results in the order of the numbers."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from typing import TypeVar

from host.errors import TlmError

T = TypeVar("T")
# Numbers handed out in advance to each process, so that one that takes long holds up no other.
_AHEAD = 16


def in_order(work: Callable[[int], T], numbers: range, jobs: int) -> Iterator[T]:
    """The results of `work`, in order, whatever the number of processes.

    Args:
        work: of one number; it depends on nothing but it. It goes to other processes and has to be picklable.
        numbers: to work on.
        jobs: processes; 1 works in this one.

    Raises:
        TlmError: a process ended before its work was done.
    """
    if jobs <= 1 or len(numbers) <= 1:
        yield from map(work, numbers)
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(jobs, len(numbers)), context, _watch)
    waiting: deque[Future[T]] = deque()
    try:
        for number in numbers:
            waiting.append(pool.submit(work, number))
            if len(waiting) > _AHEAD * jobs:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise TlmError(
            f"one of the {jobs} processes that make examples ended before its work was done "
            "(killed, or out of memory); go on with fewer jobs, what was made is kept"
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _watch() -> None:
    """Has this process end when the one that started it is gone, and leaves Ctrl-C to that one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "this process was started by another"
    wait([parent.sentinel])
    os._exit(1)
