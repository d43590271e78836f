"""The boards that measure: each takes the next program, and one that drops out loses nothing but its turn.

A single board is served by the caller's own thread, so that nothing runs beside its measurements. Several
have a thread each (`host.tuning.fleet`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol

from host.errors import BuildError, DeviceError, MeasureError, ScheduleError, SessionLost
from host.tuning.reconnect import Patience, come_back, stays_away
from host.tuning.tasks import Item, Outcome
from host.tuning.unit import Unit

# A program that boards went away from so often is at fault itself.
LOSSES = 2
# What a program can do that is its own fault alone.
FAULTS = (ScheduleError, BuildError, MeasureError, SessionLost)


class Pool(Protocol):
    """Measures programs on the boards that there are; a context manager."""

    def measured(self, items: Sequence[Item], more: Callable[[], bool]) -> Iterator[Outcome]:
        """See `host.tuning.tasks.Bench.measured`."""

    def __enter__(self) -> Pool:
        """Nothing begins before it is asked for."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End what the boards have open."""


class OneBoard:
    """The pool of a single board.

    Args:
        unit: the board.
        note: told of losses and returns.
        patience: with a board that went away.
    """

    def __init__(self, unit: Unit, note: Callable[[str], None], patience: Patience) -> None:
        self._unit = unit
        self._note = note
        self._patience = patience
        self._ending = threading.Event()

    def measured(self, items: Sequence[Item], more: Callable[[], bool]) -> Iterator[Outcome]:
        """See `host.tuning.tasks.Bench.measured`."""
        for item in items:
            if not more():
                return
            if item.library is None:
                yield Outcome(item, None, item.failure)
                continue
            try:
                outcome = self._outcome(item, item.library)
            finally:
                item.library.unlink(missing_ok=True)
            yield outcome

    def _outcome(self, item: Item, library: Path) -> Outcome:
        name = self._unit.name
        for _ in range(LOSSES):
            watch = threading.Timer(self._patience.overdue_s, self._unit.abort)
            watch.daemon = True
            watch.start()
            try:
                return Outcome(item, self._unit.measure(item.task, library), "", name)
            except FAULTS as error:
                return Outcome(item, None, one_line(error), name)
            except DeviceError as error:
                watch.cancel()
                self._come_back(error)
            finally:
                watch.cancel()
        return Outcome(item, None, at_fault(item, LOSSES), name)

    def _come_back(self, loss: DeviceError) -> None:
        patience = self._patience
        reason = come_back(self._unit, loss, patience.waits(), self._note, self._ending, patience.limit_s)
        if reason is not None:
            raise stays_away(self._unit.name, reason) from loss

    def __enter__(self) -> OneBoard:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._unit.close()


def at_fault(item: Item, losses: int) -> str:
    """What the record of a program says that boards go away from."""
    return f"kernel {item.task.name}: the device went away {losses} times while it was measured"


def one_line(error: Exception) -> str:
    """A message without line breaks."""
    return " ".join(str(error).split())
