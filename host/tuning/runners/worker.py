"""The state machine of one board: it joins, is timed, takes jobs, is lost and comes back.

    JOINING --connected--> TIMING --references timed--> READY <--take, finish--> MEASURING
                             ^  ^                         |
                             |  +--- every so many jobs --+
                             |
                           AWAY <-- from every state: a DeviceError, or no answer in time

When a board is lost, its job returns to the queue (`host.tuning.runners.job`), and the host connects to the
board again with growing pauses.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TypeVar

from host.errors import (
    BuildError,
    DeviceBusy,
    DeviceError,
    DeviceFull,
    LeaseLost,
    MeasureError,
    ScheduleError,
    SessionLost,
    one_line,
)
from host.execution import HostLost
from host.tuning.runners.connection import BoardConnection
from host.tuning.runners.group import BoardGroup
from host.tuning.runners.job import Job
from host.tuning.runners.runner import Outcome
from host.tuning.tasks import TuningTask

# Seconds that a board without a job waits for a change.
POLL_S = 0.2
# Seconds that cutting off a board may take.
_ABORT_S = 30.0
# What a program can do that is its own fault alone.
_PROGRAM_FAULTS = (ScheduleError, BuildError, MeasureError, SessionLost)
# Losses of a board for which no program is to blame: another host has it, or the host that reaches it ended.
_NOBODYS_FAULT = (DeviceBusy, HostLost)

T = TypeVar("T")


class BoardState(Enum):
    """The state of a board; see the docstring of the module."""

    JOINING = "joining"
    TIMING = "timing"
    READY = "ready"
    MEASURING = "measuring"
    AWAY = "away"


class Worker:
    """One board; `step` is called by one thread at a time.

    Args:
        connection: to the board.
        group: what it shares with the others.

    Attributes:
        name: the user's name for the board.
        state: of the board.
        known: whether the board was timed or lost at least once, so that the start does not wait for it.
        reason: the error of the last loss.
    """

    def __init__(self, connection: BoardConnection, group: BoardGroup) -> None:
        self.connection = connection
        self.name = connection.name
        self.state = BoardState.JOINING
        self.known = False
        self.reason: DeviceError | None = None
        self._group = group
        self._changed = group.jobs.changed
        self._pauses = group.policy.pauses()
        self._job: Job | None = None
        # The job after it, which is being prepared.
        self._next: tuple[Job, Future[Sequence[Path]]] | None = None
        # Whoever loses a device can find it taken by the connection that it lost, for a while.
        self._has_measured = False
        self._silent_since: float | None = None
        self._attempts = 0
        self._calling = self._hangs = False
        self._trials_since_timing = 0
        self._next_timing = 0

    @property
    def away(self) -> bool:
        """Whether the board is lost."""
        return self.state is BoardState.AWAY

    @property
    def busy(self) -> bool:
        """Whether a call to the board is running."""
        return self._calling

    @property
    def tried(self) -> bool:
        """Whether the board is lost, and a reconnection was tried or must wait for a hanging call."""
        return self.away and (self._attempts > 0 or self._hangs)

    @property
    def taken(self) -> bool:
        """Whether the board is lost to another host, so that no reconnection is tried."""
        return self.away and isinstance(self.reason, LeaseLost)

    def silent_s(self, now: float) -> float:
        """Seconds since the board was lost, if it has measured nothing since then."""
        return 0.0 if self._silent_since is None else now - self._silent_since

    def step(self) -> None:
        """Do the work of the current state; wait briefly if there is none.

        Raises:
            DeviceBusy: another host uses the only board from the start, or has taken it.
            DeviceFull: the only board, or this machine, has no space left.
        """
        try:
            if self.state is BoardState.JOINING:
                self._with_deadline(self.connection.connect)
                self._enter(BoardState.TIMING)
            elif self.state is BoardState.AWAY:
                self._reconnect()
            elif self.state is BoardState.TIMING:
                self._time_references()
            else:
                self._work()
        except DeviceError as error:
            only = len(self._group.workers) == 1
            busy = isinstance(error, DeviceBusy) and not self._has_measured
            # To connect again makes no space and gives no board back; other boards may be there.
            if only and (busy or isinstance(error, (DeviceFull, LeaseLost))):
                raise
            self._lost(error)

    def _enter(self, state: BoardState) -> None:
        with self._changed:
            self.state = state
            self._changed.notify_all()

    # -- measuring

    def _work(self) -> None:
        """Measure the next job, or begin to time the references."""
        group = self._group
        with self._changed:
            if self._timing_due():
                self.state = BoardState.TIMING
                return
            usable = group.speeds.settled and group.speeds.usable(self.name)
            if not usable:
                self._give_next_back()
            prepared = self._take() if usable else None
            if self._job is None:
                if not group.jobs.empty:
                    self._changed.wait(POLL_S)
                return
            job, self.state = self._job, BoardState.MEASURING
            self._trials_since_timing += len(job.programs)
            self._take_next()
            if self._next is not None and not self._timing_due():
                group.method.follow(self.connection, self._next[0].programs)
        outcomes = self._with_deadline(partial(self._measure, job, prepared))
        with self._changed:
            if group.jobs.finish(job, self.name, outcomes):
                self._job, self.state = None, BoardState.READY
                self._pauses = group.policy.pauses()
                self._has_measured = True
                self._answered()

    def _take(self) -> Future[Sequence[Path]] | None:
        """Take the job in hand, or the next one of the queue; returns what is prepared for it."""
        if self._next is not None:
            (self._job, prepared), self._next = self._next, None
            return prepared
        self._job = self._group.jobs.take(self.name, self._group.is_alone(self))
        return None

    def _take_next(self) -> None:
        """Take a second job and prepare it, unless that leaves too few for the other boards."""
        group = self._group
        if group.preparing is None or group.jobs.waiting < len(group.workers):
            return
        job = group.jobs.take(self.name, group.is_alone(self))
        if job is not None:
            self._next = (job, group.preparing.submit(group.method.prepared, job.programs))

    def _give_next_back(self) -> None:
        """Return the second job to the queue, for another board; the caller has the lock."""
        if self._next is not None:
            (job, prepared), self._next = self._next, None
            self.connection.withdraw()
            prepared.add_done_callback(_removed)
            self._group.jobs.give_back(job, at_fault=False)

    def _measure(self, job: Job, prepared: Future[Sequence[Path]] | None) -> list[Outcome]:
        """The outcomes of the job's programs; none where several fail together."""
        with self._changed:
            factor = self._group.speeds.factor(self.name)
        try:
            made = prepared.result() if prepared is not None else None
            return self._group.method.measure(self.connection, job.programs, factor, made)
        except _PROGRAM_FAULTS as error:
            if len(job.programs) > 1:
                return []
            return [Outcome(job.programs[0], None, one_line(error), self.name)]

    def _answered(self) -> None:
        self._silent_since, self._attempts = None, 0

    # -- how fast the board is, compared with the others

    def _timing_due(self) -> bool:
        """Whether it is time to time the references again."""
        speeds = self._group.speeds
        if not speeds.settled or not self._group.references:
            return False
        if speeds.usable(self.name):
            return self._trials_since_timing >= speeds.every
        # Where no other board measures, one that differs is better than none: timed again, it is the group.
        return not self._group.others_measure(self) or self._group.jobs.outcomes >= self._next_timing

    def _time_references(self) -> None:
        group = self._group
        times_s: list[float] = []
        for task, library in group.references:
            if group.ending.is_set():
                return
            times_s.append(self._with_deadline(partial(self._reference_s, task, library)))
        with self._changed:
            self._trials_since_timing, self.known = 0, True
            self._next_timing = group.jobs.outcomes + group.speeds.every
            if times_s:
                self._answered()
            note = group.speeds.read(self.name, times_s)
            self.state = BoardState.READY
            group.compare_speeds()
            self._changed.notify_all()
        if note:
            group.note(note)

    def _reference_s(self, task: TuningTask, library: Path) -> float:
        """Seconds of a reference program; 0 where it failed."""
        try:
            return self.connection.measure(task, library).median_s
        except _PROGRAM_FAULTS as error:
            self._group.note(
                f"{self.name}: the reference program of {task.name} is left out: {one_line(error)}"
            )
            return 0.0

    # -- going away and coming back

    def _with_deadline(self, call: Callable[[], T]) -> T:
        """The result of a call to the board, which is aborted when it takes too long.

        Raises:
            DeviceError: it answered after it had been cut off.
        """
        watch = threading.Timer(self._group.policy.answer_limit_s, self._cut_off)
        watch.daemon = True
        with self._changed:
            self._calling = True
        watch.start()
        try:
            result = call()
        finally:
            watch.cancel()
            with self._changed:
                self._calling = False
                late, self._hangs = self._hangs, False
            if late:
                # The next call must not be cut off in place of this one.
                watch.join(_ABORT_S)
        if late:
            raise DeviceError(f"{self.name} answered too late")
        return result

    def _cut_off(self) -> None:
        """Abort a hanging call: the board is lost, and another one gets its job."""
        with self._changed:
            if not self._calling:
                return
            self._hangs = True
            loss = DeviceError(f"{self.name} hangs: no answer for {self._group.policy.answer_limit_s:.3g} s")
            text = f"{loss}; it is cut off, and its program is measured again"
            self._mark_away(loss)
        self._group.note(text)
        self.connection.abort()

    def _lost(self, loss: DeviceError) -> None:
        """Drop the connection to a lost board."""
        with self._changed:
            self._mark_away(loss)
        # Who has it now keeps it: see `_reconnect`.
        then = "the other devices measure what is left" if self.taken else "trying to reach it again"
        self._group.note(f"{loss}; {then}")
        note = self.connection.drop()
        if note:
            self._group.note(note)

    def _mark_away(self, loss: DeviceError) -> None:
        """Change to the state AWAY and give the job back; the caller has the lock."""
        self.state, self.reason, self.known = BoardState.AWAY, loss, True
        self._silent_since = self._silent_since or time.monotonic()
        self._group.speeds.forget(self.name)
        job, self._job = self._job, None
        self._give_next_back()
        if job is not None:
            self._group.jobs.give_back(job, at_fault=not isinstance(loss, _NOBODYS_FAULT))
        self._group.compare_speeds()
        self._changed.notify_all()

    def _reconnect(self) -> None:
        """Try once to connect again, after the next pause.

        Raises:
            LeaseLost: another host has the only board now.
        """
        if self.taken:
            self._group.ending.wait(POLL_S)
            return
        if self._group.ending.wait(self._pause_s()):
            return
        try:
            self.connection.connect()
        except LeaseLost as error:
            if len(self._group.workers) == 1:
                raise
            self.reason = error
            self._group.note(f"{error}; the other devices measure what is left")
        except DeviceError as error:
            self.reason = error
        else:
            self._group.note(f"{self.name} is back")
            self._enter(BoardState.TIMING)
        with self._changed:
            self._attempts += 1
            self._changed.notify_all()

    def _pause_s(self) -> float:
        """Seconds until the next attempt; the last attempt is exactly at the limit."""
        left_s = self._group.policy.limit_s - self.silent_s(time.monotonic())
        return min(next(self._pauses), left_s if left_s > 0 else math.inf)


def _removed(prepared: Future[Sequence[Path]]) -> None:
    """Remove what was prepared for a job that another board has now, and prepares again."""
    if not prepared.cancelled() and prepared.exception() is None:
        for path in prepared.result():
            path.unlink(missing_ok=True)
