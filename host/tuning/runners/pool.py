"""Workers that measure one queue of jobs.

The thread that waits for outcomes also serves a single board, so that nothing runs beside its measurements.
Several boards have a thread each, and so has every board of an engine, whose measurements are elsewhere. The
states of jobs and boards are the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from host.errors import DeviceError, one_line
from host.tuning.runners.connection import BoardConnection
from host.tuning.runners.group import BoardGroup
from host.tuning.runners.method import KernelsAlone, MeasuringMethod
from host.tuning.runners.reconnect import ReconnectPolicy, boards_lost_error
from host.tuning.runners.runner import Outcome, Program
from host.tuning.runners.speeds import BoardSpeeds
from host.tuning.runners.worker import POLL_S, Worker
from host.tuning.tasks import TuningTask

# Seconds that a board may take to end what it is doing, and again after it was cut off.
_END_S = 30.0


class WorkerPool:
    """Measures programs on boards of one kind; a context manager.

    Args:
        connections: to the boards.
        note: receives a line about each loss, return and exclusion; called from several
            threads.
        policy: of reconnecting to lost boards.
        references: programs that every board times, by task and library; they are not removed.
        speeds: compares the boards by them.
        method: how the programs of a job are measured; None measures each kernel by itself.
        ahead: whether a board has a second job in hand, which is prepared while it measures the first one.
    """

    def __init__(
        self,
        connections: Sequence[BoardConnection],
        note: Callable[[str], None],
        policy: ReconnectPolicy,
        references: Sequence[tuple[TuningTask, Path]] = (),
        speeds: BoardSpeeds | None = None,
        method: MeasuringMethod | None = None,
        ahead: bool = False,
    ) -> None:
        # As many as there are boards: each has at most one job to prepare.
        self._preparing = ThreadPoolExecutor(len(connections), "preparing") if ahead else None
        self._group = BoardGroup(
            note, policy, references, speeds or BoardSpeeds(), method or KernelsAlone(), self._preparing
        )
        self._group.workers = tuple(Worker(connection, self._group) for connection in connections)
        self._threads: dict[Worker, threading.Thread] = {}
        self._error: Exception | None = None

    def run(
        self,
        programs: Sequence[Program],
        may_begin: Callable[[], bool],
        more: Callable[[], Sequence[Program]] | None = None,
    ) -> Iterator[Outcome]:
        """See `host.tuning.runners.runner.Runner.run`; a library is removed when its outcome is known."""
        group = self._group
        left = self._put(programs, may_begin)
        if (len(group.workers) > 1 or group.preparing is not None) and not self._threads:
            self._start_threads()

        def refill() -> None:
            nonlocal left
            if more is not None and group.jobs.waiting < len(group.workers):
                left += self._put(more(), may_begin)

        while left:
            outcome = self._next_outcome(refill)
            if outcome is None:
                return
            left -= 1
            if isinstance(outcome.program.built, Path):
                outcome.program.built.unlink(missing_ok=True)
            yield outcome

    def _put(self, programs: Sequence[Program], may_begin: Callable[[], bool]) -> int:
        """Append programs to the queue; returns how many."""
        group = self._group
        if programs:
            group.jobs.put(group.method.jobs(programs, len(group.workers)), may_begin)
        return len(programs)

    def _next_outcome(self, refill: Callable[[], None]) -> Outcome | None:
        """The next outcome; None if no time is left and no job is running.

        Args:
            refill: appends what there is to the queue where it is nearly empty.

        Raises:
            LeaseLost: all boards are other hosts' now.
            DeviceError: all boards are lost, and none comes back.
        """
        group, jobs = self._group, self._group.jobs
        while True:
            refill()
            with jobs.changed:
                if self._error is not None:
                    raise self._error
                outcome = jobs.pop_outcome()
                if outcome is not None or jobs.empty:
                    return outcome
                if group.all_lost():
                    reason = group.workers[0].reason
                    if reason is not None and all(one.taken for one in group.workers):
                        raise reason
                    raise boards_lost_error([one.name for one in group.workers], reason) from reason
                if self._threads:
                    jobs.drop_late()
                    jobs.changed.wait(POLL_S)
                    continue
            group.workers[0].step()

    def _start_threads(self) -> None:
        for worker in self._group.workers:
            thread = threading.Thread(
                target=self._serve, args=(worker,), name=f"board {worker.name}", daemon=True
            )
            self._threads[worker] = thread
            thread.start()

    def _serve(self, worker: Worker) -> None:
        try:
            while not self._group.ending.is_set():
                worker.step()
        except Exception as error:  # noqa: BLE001 - raised again by the thread that waits for outcomes
            with self._group.jobs.changed:
                self._error = error
                self._group.jobs.changed.notify_all()

    def __enter__(self) -> WorkerPool:
        """The pool itself: threads start with the first call of `run`."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Drop jobs that wait, and close the connections to the boards."""
        self._group.ending.set()
        self._group.jobs.drop()
        for worker in self._group.workers:
            # After an error, the boards' jobs are not waited for.
            if self._ended(worker, 0.0 if kind is not None else _END_S):
                self._close(worker)
        if self._preparing is not None:
            self._preparing.shutdown(cancel_futures=True)

    def _ended(self, worker: Worker, wait_s: float) -> bool:
        """Whether the thread of a board ends; if necessary, the call to the board is aborted."""
        thread = self._threads.get(worker)
        if thread is None:
            return True
        thread.join(wait_s)
        if thread.is_alive() and worker.busy:
            worker.connection.abort()
        thread.join(_END_S)
        if thread.is_alive():
            self._group.note(f"{worker.name} still hangs and is abandoned")
        return not thread.is_alive()

    def _close(self, worker: Worker) -> None:
        try:
            worker.connection.close()
        except DeviceError as error:
            self._group.note(f"{worker.name}: closing the connection failed: {one_line(error)}")
