"""The shared state of the boards of one runner: jobs, speeds, and which boards are connected."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING

from host.tuning.runners.job import JobQueue
from host.tuning.runners.method import MeasuringMethod
from host.tuning.runners.reconnect import ReconnectPolicy
from host.tuning.runners.speeds import BoardSpeeds
from host.tuning.tasks import TuningTask

if TYPE_CHECKING:
    from host.tuning.runners.worker import Worker


class BoardGroup:
    """Boards of one kind that measure the same jobs. Its methods need the lock of the jobs.

    Args:
        note: receives a line about each loss, return and exclusion; called from several
            threads.
        policy: of reconnecting to lost boards.
        references: programs that every board times, by task and library; none for a single board.
        speeds: compares the boards by them.
        method: how the programs of a job are measured.
        preparing: prepares the next job of a board while it measures; None where a board has one job at a
            time.

    Attributes:
        jobs: with the lock of everything that changes here.
        workers: one a board.
        ending: set when the boards are no longer needed.
    """

    def __init__(
        self,
        note: Callable[[str], None],
        policy: ReconnectPolicy,
        references: Sequence[tuple[TuningTask, Path]],
        speeds: BoardSpeeds,
        method: MeasuringMethod,
        preparing: Executor | None = None,
    ) -> None:
        self.preparing = preparing
        self.note = note
        self.policy = policy
        self.references = tuple(references)
        self.speeds = speeds
        self.method = method
        self.jobs = JobQueue()
        self.workers: tuple[Worker, ...] = ()
        self.ending = threading.Event()

    def is_alone(self, worker: Worker) -> bool:
        """Whether no other board is connected."""
        return all(one is worker or one.away for one in self.workers)

    def others_measure(self, worker: Worker) -> bool:
        """Whether another board is connected and as fast as the group."""
        return any(
            one is not worker and not one.away and self.speeds.usable(one.name) for one in self.workers
        )

    def all_lost(self) -> bool:
        """Whether every board is another's, or lost, tried again, and without a measurement for too long."""
        limit_s, now = self.policy.limit_s, time.monotonic()
        return all(one.taken or (one.tried and one.silent_s(now) >= limit_s) for one in self.workers)

    def compare_speeds(self) -> None:
        """Find the boards with similar speeds, as soon as every board was timed once or lost."""
        if not self.speeds.settled and all(worker.known for worker in self.workers):
            for text in self.speeds.settle():
                self.note(text)
            self.jobs.changed.notify_all()
