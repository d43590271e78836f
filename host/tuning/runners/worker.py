"""Several boards of one kind that measure one job, each in a thread of its own.

A thread connects to its board, times the reference programs, and then takes one program after the other.
When the board goes away it connects again, with growing pauses for as long as the others measure, while
its program is measured by another. How fast the boards are beside each other: `host.tuning.runners.speeds`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from host.errors import DeviceError
from host.model import Measurement
from host.tuning.runners.connection import Unit
from host.tuning.runners.job import Lane, Queue, Turn
from host.tuning.runners.reconnect import Patience, come_back, stays_away
from host.tuning.runners.single import FAULTS, one_line
from host.tuning.runners.speeds import Speeds
from host.tuning.tasks import Item, Outcome, TuningTask

_POLL_S = 0.2
_END_S = 30.0

T = TypeVar("T")


class Fleet:
    """The pool of several boards; a context manager.

    Args:
        units: the boards.
        note: told of losses, returns and exclusions; called from several threads.
        patience: with boards that went away.
        references: programs that every board times, by task and library; they are kept.
        speeds: judges the boards by them.
    """

    def __init__(
        self,
        units: Sequence[Unit],
        note: Callable[[str], None],
        patience: Patience,
        references: Sequence[tuple[TuningTask, Path]],
        speeds: Speeds | None = None,
    ) -> None:
        self._queue = Queue(units, patience)
        self._note = note
        self._patience = patience
        self._references = tuple(references)
        self._speeds = speeds or Speeds()
        self._ending = threading.Event()
        self._threads: dict[str, threading.Thread] = {}
        self._error: Exception | None = None

    # -- the thread that waits for outcomes

    def measured(self, items: Sequence[Item], more: Callable[[], bool]) -> Iterator[Outcome]:
        """See `host.tuning.tasks.Bench.measured`."""
        self._queue.put(items, more)
        self._start()
        for _ in items:
            outcome = self._next()
            if outcome is None:
                return
            if outcome.item.library is not None:
                outcome.item.library.unlink(missing_ok=True)
            yield outcome

    def _start(self) -> None:
        if self._threads:
            return
        for lane in self._queue.lanes:
            name = lane.unit.name
            thread = threading.Thread(target=self._run, args=(lane,), name=f"unit {name}", daemon=True)
            self._threads[name] = thread
            thread.start()

    def _next(self) -> Outcome | None:
        """The next outcome; None where time is up and nothing is under way."""
        queue = self._queue
        with queue.changed:
            while True:
                if self._error is not None:
                    raise self._error
                outcome = queue.pop()
                if outcome is not None or queue.over():
                    return outcome
                for lane, loss in queue.hanging():
                    self._note(f"{loss}; what it was measuring goes to another board")
                    threading.Thread(target=lane.unit.abort, daemon=True).start()
                if queue.deserted():
                    names = ", ".join(lane.unit.name for lane in queue.lanes)
                    raise stays_away(f"none of {names}", queue.lanes[0].reason)
                self._settle()
                queue.changed.wait(min(_POLL_S, self._patience.overdue_s / 4))

    def _settle(self) -> None:
        """Find out which boards agree, when every one was looked at."""
        if not self._speeds.settled and all(lane.looked_at for lane in self._queue.lanes):
            for text in self._speeds.settle():
                self._note(text)
            self._queue.changed.notify_all()

    # -- the thread of one board

    def _run(self, lane: Lane) -> None:
        try:
            self._join(lane)
            while not self._ending.is_set():
                try:
                    self._serve(lane)
                except DeviceError as error:
                    self._lose(lane, error)
        except Exception as error:  # noqa: BLE001 - raised again by the thread that waits for outcomes
            with self._queue.changed:
                self._error = error
                self._queue.changed.notify_all()

    def _join(self, lane: Lane) -> None:
        """Connect for the first time."""
        try:
            self._watched(lane, lane.unit.connect)
            self._look(lane)
        except DeviceError as error:
            self._lose(lane, error)

    def _serve(self, lane: Lane) -> None:
        """Do what there is to do; wait where there is nothing.

        Raises:
            DeviceError: the board went away.
        """
        queue = self._queue
        with queue.changed:
            due = self._due(lane)
            usable = self._speeds.settled and self._speeds.usable(lane.unit.name)
            turn = None if due else queue.take(lane, usable)
            if not due and turn is None:
                queue.changed.wait(_POLL_S)
        if due:
            self._look(lane)
        elif turn is not None:
            queue.finish(lane, turn, self._watched(lane, partial(self._measure, lane, turn)))

    def _measure(self, lane: Lane, turn: Turn) -> Outcome:
        name, item = lane.unit.name, turn.item
        assert item.library is not None
        try:
            measurement = lane.unit.measure(item.task, item.library)
        except FAULTS as error:
            return Outcome(item, None, one_line(error), name)
        with self._queue.changed:
            factor = self._speeds.factor(name)
        return Outcome(item, _corrected(measurement, factor), "", name, factor)

    def _watched(self, lane: Lane, call: Callable[[], T]) -> T:
        """A call to a board that must not take for ever.

        Raises:
            DeviceError: it answered after it had been found to hang.
        """
        with self._queue.changed:
            lane.since = time.monotonic()
        try:
            result = call()
        finally:
            with self._queue.changed:
                late, lane.since = lane.since is None, None
        if late:
            raise DeviceError(f"{lane.unit.name} answered too late")
        return result

    def _lose(self, lane: Lane, loss: DeviceError) -> None:
        """Do without a board until it answers again."""
        self._queue.lose(lane, loss)
        with self._queue.changed:
            self._speeds.forget(lane.unit.name)
        reason: DeviceError | None = loss
        while reason is not None and not self._ending.is_set():
            reason = come_back(lane.unit, reason, lane.waits, self._note, self._ending, None)
            if reason is None:
                try:
                    self._look(lane)
                except DeviceError as error:
                    reason = error
        with self._queue.changed:
            lane.reason = reason
            lane.away_since = None if reason is None else lane.away_since
            self._queue.changed.notify_all()

    # -- how fast the boards are

    def _due(self, lane: Lane) -> bool:
        """Whether it is time to look at a board again; with the lock."""
        speeds = self._speeds
        if not speeds.settled or not self._references:
            return False
        if speeds.usable(lane.unit.name):
            return lane.measured >= speeds.every
        # Where nobody else measures, an odd board is better than none: a new look takes it as the fleet.
        others = any(
            one is not lane and one.away_since is None and speeds.usable(one.unit.name)
            for one in self._queue.lanes
        )
        return not others or self._queue.outcomes >= lane.rest

    def _look(self, lane: Lane) -> None:
        """Time the reference programs on a board.

        Raises:
            DeviceError: it went away.
        """
        times_s: list[float] = []
        for task, library in self._references:
            if self._ending.is_set():
                return
            times_s.append(self._watched(lane, partial(self._reference, lane, task, library)))
        with self._queue.changed:
            lane.measured, lane.looked_at = 0, True
            lane.rest = self._queue.outcomes + self._speeds.every
            said = self._speeds.read(lane.unit.name, times_s)
            self._queue.changed.notify_all()
        if said:
            self._note(said)

    def _reference(self, lane: Lane, task: TuningTask, library: Path) -> float:
        """Seconds of a reference program; 0 where it failed."""
        try:
            return lane.unit.measure(task, library).median_s
        except FAULTS as error:
            self._note(
                f"{lane.unit.name}: the reference program of {task.name} is left out: {one_line(error)}"
            )
            return 0.0

    # -- the end

    def __enter__(self) -> Fleet:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._queue.clear()
        # Where something went wrong nobody waits for what the boards are at.
        end_s = 0.0 if kind is not None else _END_S
        for lane in self._queue.lanes:
            thread = self._threads.get(lane.unit.name)
            if thread is not None:
                self._end(lane, thread, end_s)
            if thread is None or not thread.is_alive():
                self._close(lane)

    def _end(self, lane: Lane, thread: threading.Thread, end_s: float) -> None:
        thread.join(end_s)
        with self._queue.changed:
            busy = lane.since is not None
        if thread.is_alive() and busy:
            lane.unit.abort()
        thread.join(_END_S)
        if thread.is_alive():
            self._note(f"{lane.unit.name} still hangs and is left behind")

    def _close(self, lane: Lane) -> None:
        try:
            lane.unit.close()
        except DeviceError as error:
            self._note(f"{lane.unit.name}: at the end: {one_line(error)}")


def _corrected(measurement: Measurement, factor: float) -> Measurement:
    """Times as the boards of the fleet have them on average."""
    if factor == 1.0:
        return measurement
    return replace(measurement, times_s=tuple(time_s / factor for time_s in measurement.times_s))
