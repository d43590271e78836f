"""Programs on their way to a measurement: one queue of jobs for all boards.

    QUEUED --take--> RUNNING --finish--> DONE
      ^  |              |
      |  |              | give_back: its board went away, or does not answer in time
      |  |              |
      +--|--------------+---> DONE, as a failure, when boards went away from it twice
         |
         +-- no time is left --> DROPPED

A job is in exactly one state and RUNNING on exactly one board, so none is lost and none is measured twice.
A board from which its job was taken does not run it any more: what it answers later changes nothing.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from host.tuning.runners.runner import Outcome, Program

# A program that boards went away from so often is at fault itself.
MAX_LOSSES = 2


class JobState(Enum):
    """Where a job is."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    DROPPED = "dropped"


@dataclass(eq=False)
class Job:
    """The measurement of one program.

    Attributes:
        program: that is to be measured.
        state: see the head of this module.
        board: name of the board that it runs on; "" in every other state.
        lost_on: names of the boards that went away while they ran it.
    """

    program: Program
    state: JobState = JobState.QUEUED
    board: str = ""
    lost_on: list[str] = field(default_factory=list)


class JobQueue:
    """The jobs of a runner. Every method but `put` and `drop` needs the lock.

    Attributes:
        changed: the lock, notified when anything changes.
        outcomes: number of outcomes that were taken out.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.outcomes = 0
        self._waiting: deque[Job] = deque()
        self._running: set[Job] = set()
        self._done: deque[Outcome] = deque()
        self._may_begin: Callable[[], bool] = lambda: True

    def put(self, programs: Sequence[Program], may_begin: Callable[[], bool]) -> None:
        """Queue programs behind the others; `may_begin` says whether any more of them may begin."""
        with self.changed:
            self._may_begin = may_begin
            self._waiting.extend(Job(program) for program in programs)
            self.changed.notify_all()

    def pop_outcome(self) -> Outcome | None:
        """The next outcome, if there is one."""
        if not self._done:
            self._pass_unbuilt()
        if not self._done:
            return None
        self.outcomes += 1
        return self._done.popleft()

    @property
    def empty(self) -> bool:
        """Whether no job waits, none runs, and no outcome is left."""
        return not (self._waiting or self._running or self._done)

    def take(self, board: str, alone: bool) -> Job | None:
        """The next job for a board; None where there is none for it.

        A job that this board went away from is for another one.

        Args:
            board: name of the board.
            alone: whether no other board is there, so that this one takes every job.
        """
        self._pass_unbuilt()
        job = next((one for one in self._waiting if alone or board not in one.lost_on), None)
        if job is None:
            return None
        if not self._may_begin():
            self._drop_waiting()
            return None
        self._waiting.remove(job)
        self._running.add(job)
        job.state, job.board = JobState.RUNNING, board
        return job

    def finish(self, job: Job, board: str, outcome: Outcome) -> bool:
        """A board has an outcome; False, and nothing changes, where the job is not the board's any more."""
        if job.state is not JobState.RUNNING or job.board != board:
            return False
        self._end(job, outcome)
        return True

    def give_back(self, job: Job, at_fault: bool) -> None:
        """The board of a running job is gone: the job goes to the front of the queue, or fails.

        Args:
            job: that is running.
            at_fault: whether the program may be the reason.
        """
        assert job.state is JobState.RUNNING
        if at_fault:
            job.lost_on.append(job.board)
        if len(job.lost_on) >= MAX_LOSSES:
            kernel = job.program.task.name
            failure = f"kernel {kernel}: the device went away {MAX_LOSSES} times while it was measured"
            self._end(job, Outcome(job.program, None, failure, job.board))
            return
        self._running.remove(job)
        self._waiting.appendleft(job)
        job.state, job.board = JobState.QUEUED, ""
        self.changed.notify_all()

    def drop_late(self) -> None:
        """Drop what has not begun where no time is left."""
        if self._waiting and not self._may_begin():
            self._drop_waiting()

    def drop(self) -> None:
        """Drop what has not begun."""
        with self.changed:
            self._drop_waiting()

    def _pass_unbuilt(self) -> None:
        """What was not built needs no board: it is done when its turn comes."""
        while self._waiting and self._waiting[0].program.library is None:
            if not self._may_begin():
                self._drop_waiting()
                return
            job = self._waiting.popleft()
            self._end(job, Outcome(job.program, None, job.program.failure))

    def _end(self, job: Job, outcome: Outcome) -> None:
        self._running.discard(job)
        job.state, job.board = JobState.DONE, ""
        self._done.append(outcome)
        self.changed.notify_all()

    def _drop_waiting(self) -> None:
        for job in self._waiting:
            job.state = JobState.DROPPED
        self._waiting.clear()
        self.changed.notify_all()
