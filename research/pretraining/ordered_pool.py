"""Spreads numbered pieces of work over processes and returns the results in the order of the numbers."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from typing import TypeVar

from host.errors import TlmError
from host.execution import Engine, JobCrashed, Pending

T = TypeVar("T")
# Numbers submitted in advance for each process, so that a slow piece of work does not stall the others.
_AHEAD = 16


def in_order(
    work: Callable[[int], T], numbers: Sequence[int], jobs: int, engine: Engine | None = None
) -> Iterator[T]:
    """Yields the results of `work` in order, for any number of processes.

    Args:
        work: computes the result of one number, and depends on nothing else. With several processes, it must
            be picklable.
        numbers: the numbers to work on.
        jobs: number of processes; with 1, the work is done in the calling process.
        engine: whose hosts do the work in place of processes of this one, each on all of its cores.

    Raises:
        TlmError: a process ended before its work was done.
        EdgeError: the engine is gone.
    """
    if engine is not None and engine.remote:
        yield from _by_hosts(work, numbers, engine)
        return
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


def _by_hosts(work: Callable[[int], T], numbers: Sequence[int], engine: Engine) -> Iterator[T]:
    """The same by the hosts of an engine; what a host had that is lost is done again by another one."""
    shared, most = engine.share(work), _AHEAD * engine.cores()
    waiting: deque[Pending[T]] = deque()
    try:
        for number in numbers:
            waiting.append(engine.submit(_one, shared, number))
            if len(waiting) > most:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except JobCrashed as error:
        raise TlmError(f"an example ends the process that makes it: {error}") from error
    finally:
        for one in waiting:
            one.cancel()


def _one(work: Callable[[int], T], number: int) -> T:
    return work(number)


def _watch() -> None:
    """Makes this worker end when its parent ends, and leaves Ctrl-C to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "this process was started by another"
    wait([parent.sentinel])
    os._exit(1)
