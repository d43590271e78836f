"""One queue of jobs for all boards; a job is the measurement of one program, or of several together.

    QUEUED --take--> RUNNING --finish--> DONE
      ^  |              |
      |  |              | give_back: its board went away, or does not answer in time
      |  |              |
      +--|--------------+---> DONE, as a failure, when boards went away from it twice
         |
         +-- no time is left --> DROPPED

A job is in exactly one state and RUNNING on exactly one board, so none is lost and none is measured twice. If
a job is taken from a board, a later answer of this board is ignored.

Where a job of several programs fails, the program at fault is unknown: its halves take its place, as
jobs of their own, until one program is left.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from host.tuning.runners.runner import Outcome, Program

# A program that boards went away from so often is at fault itself.
MAX_LOSSES = 2


class JobState(Enum):
    """The state of a job."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    DROPPED = "dropped"


@dataclass(eq=False)
class Job:
    """The measurement of one program, or of several together.

    Attributes:
        programs: to be measured.
        state: see the docstring of the module.
        board: name of the board that runs the job; "" in every other state.
        lost_on: names of the boards that were lost while they ran the job.
    """

    programs: tuple[Program, ...]
    state: JobState = JobState.QUEUED
    board: str = ""
    lost_on: list[str] = field(default_factory=list)


class JobQueue:
    """The jobs of a runner. Every method but `put` and `drop` needs the lock.

    Attributes:
        changed: the lock, notified when anything changes.
        outcomes: number of outcomes that `pop_outcome` has returned.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.outcomes = 0
        self._waiting: deque[Job] = deque()
        self._running: set[Job] = set()
        self._done: deque[Outcome] = deque()
        self._may_begin: Callable[[], bool] = lambda: True

    def put(self, jobs: Sequence[Sequence[Program]], may_begin: Callable[[], bool]) -> None:
        """Append the programs of jobs to the queue; `may_begin` returns whether more of them may begin."""
        with self.changed:
            self._may_begin = may_begin
            self._waiting.extend(Job(tuple(programs)) for programs in jobs)
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
    def waiting(self) -> int:
        """How many jobs have not begun."""
        return len(self._waiting)

    @property
    def empty(self) -> bool:
        """Whether no job waits, none runs, and no outcome is left."""
        return not (self._waiting or self._running or self._done)

    def take(self, board: str, alone: bool) -> Job | None:
        """The next job for a board; None if there is none.

        A job during which this board was lost is for another board.

        Args:
            board: name of the board.
            alone: whether no other board is connected, so that this one takes every job.
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

    def finish(self, job: Job, board: str, outcomes: Sequence[Outcome]) -> bool:
        """Record outcomes of a board; False, without a change, if the job is no longer on this board.

        Programs of the job without an outcome return to the front of the queue: as one job if others have an
        outcome, else as two halves.
        """
        if job.state is not JobState.RUNNING or job.board != board:
            return False
        known = {id(outcome.program) for outcome in outcomes}
        rest = tuple(program for program in job.programs if id(program) not in known)
        self._end(job, outcomes)
        self._queue_again((rest,) if outcomes else _halves(rest))
        return True

    def give_back(self, job: Job, at_fault: bool) -> None:
        """Return the job of a lost board to the front of the queue, or let it fail.

        Args:
            job: of the lost board.
            at_fault: whether the program may be the reason.
        """
        assert job.state is JobState.RUNNING
        if at_fault:
            job.lost_on.append(job.board)
        if len(job.lost_on) >= MAX_LOSSES:
            if len(job.programs) > 1:
                self._end(job, ())
                self._queue_again(_halves(job.programs))
                return
            kernel = job.programs[0].task.name
            failure = f"kernel {kernel}: the device went away {MAX_LOSSES} times while it was measured"
            self._end(job, [Outcome(job.programs[0], None, failure, job.board)])
            return
        self._running.remove(job)
        self._waiting.appendleft(job)
        job.state, job.board = JobState.QUEUED, ""
        self.changed.notify_all()

    def drop_late(self) -> None:
        """Drop jobs that have not begun if no time is left."""
        if self._waiting and not self._may_begin():
            self._drop_waiting()

    def drop(self) -> None:
        """Drop jobs that have not begun."""
        with self.changed:
            self._drop_waiting()

    def _pass_unbuilt(self) -> None:
        """Finish programs that were not built, which need no board, when their turn comes."""
        while self._waiting and self._waiting[0].programs[0].built is None:
            if not self._may_begin():
                self._drop_waiting()
                return
            job = self._waiting.popleft()
            self._end(job, [Outcome(one, None, one.failure) for one in job.programs])

    def _end(self, job: Job, outcomes: Iterable[Outcome]) -> None:
        self._running.discard(job)
        job.state, job.board = JobState.DONE, ""
        self._done.extend(outcomes)
        self.changed.notify_all()

    def _queue_again(self, parts: Iterable[tuple[Program, ...]]) -> None:
        self._waiting.extendleft(reversed([Job(programs) for programs in parts if programs]))

    def _drop_waiting(self) -> None:
        for job in self._waiting:
            job.state = JobState.DROPPED
        self._waiting.clear()
        self.changed.notify_all()


def _halves(programs: tuple[Program, ...]) -> tuple[tuple[Program, ...], ...]:
    middle = (len(programs) + 1) // 2
    return programs[:middle], programs[middle:]
