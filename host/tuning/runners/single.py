"""The boards that measure: each takes the next program, and one that drops out loses nothing but its turn.

A single board is served by the caller's own thread, so that nothing runs beside its measurements. Several
have a thread each (`host.tuning.runners.worker`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol

from host.errors import BuildError, DeviceBusy, DeviceError, MeasureError, ScheduleError, SessionLost
from host.tuning.runners.connection import Unit
from host.tuning.runners.reconnect import Patience, come_back, stays_away
from host.tuning.tasks import Item, Outcome

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
        self._waits = patience.waits()
        self._away_since: float | None = None
        # Whoever loses a device can find it taken by the connection that it lost, for a while.
        self._was_ours = False

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
        losses = 0
        while losses < LOSSES:
            watch = threading.Timer(self._patience.overdue_s, self._unit.abort)
            watch.daemon = True
            watch.start()
            try:
                outcome = Outcome(item, self._unit.measure(item.task, library), "", name)
            except FAULTS as error:
                outcome = Outcome(item, None, one_line(error), name)
            except DeviceError as error:
                watch.cancel()
                losses += not isinstance(error, DeviceBusy)
                self._come_back(error)
                continue
            finally:
                watch.cancel()
            self._waits, self._away_since = self._patience.waits(), None
            self._was_ours = True
            return outcome
        return Outcome(item, None, fault_of(item, LOSSES), name)

    def _come_back(self, loss: DeviceError) -> None:
        """Connect again.

        Raises:
            DeviceError: it does not come back.
        """
        if isinstance(loss, DeviceBusy) and not self._was_ours:
            raise loss
        self._away_since = self._away_since or time.monotonic()
        left_s = max(0.0, self._patience.limit_s - (time.monotonic() - self._away_since))
        reason = come_back(self._unit, loss, self._waits, self._note, self._ending, left_s)
        if reason is None and left_s == 0.0:
            # It answers, and never for long enough to measure anything.
            reason = loss
        if reason is not None:
            raise stays_away(self._unit.name, reason) from loss

    def __enter__(self) -> OneBoard:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._unit.close()


def fault_of(item: Item, losses: int) -> str:
    """What the record of a program says that boards go away from."""
    return f"kernel {item.task.name}: the device went away {losses} times while it was measured"


def one_line(error: Exception) -> str:
    """A message without line breaks."""
    return " ".join(str(error).split())
