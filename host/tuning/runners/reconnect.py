"""Waiting for a board that went away: attempts to connect with growing pauses."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from host.errors import DeviceError
from host.tuning.runners.connection import TIME_LIMIT_S, Unit


@dataclass(frozen=True)
class Patience:
    """How long boards that went away are waited for.

    Attributes:
        limit_s: measuring ends when no board has answered for so long; a board takes a minute to start again.
        first_s: before the second attempt to connect; it doubles from one to the next.
        longest_s: the longest time between two attempts.
        overdue_s: a board that has not answered to a program by then hangs.
    """

    limit_s: float = 300.0
    first_s: float = 1.0
    longest_s: float = 30.0
    overdue_s: float = 3 * TIME_LIMIT_S

    def waits(self) -> Iterator[float]:
        """Seconds before each attempt, without end."""
        yield 0.0
        wait_s = self.first_s
        while True:
            yield min(wait_s, self.longest_s)
            wait_s = min(2 * wait_s, self.longest_s)


def come_back(
    unit: Unit,
    loss: DeviceError,
    waits: Iterator[float],
    note: Callable[[str], None],
    ending: threading.Event,
    limit_s: float | None,
) -> DeviceError | None:
    """Connect to a board that went away.

    Args:
        unit: the board.
        loss: what it went away with.
        waits: seconds before each attempt; it is drawn from.
        note: told of the loss and the return.
        ending: set when nobody needs the board any more.
        limit_s: give up after so long; None never does.

    Returns:
        None when it is back, else why it is not.
    """
    note(f"{loss}; trying to reach it again")
    said = unit.drop()
    if said:
        note(said)
    until = None if limit_s is None else time.monotonic() + limit_s
    for wait_s in waits:
        left_s = wait_s if until is None else max(0.0, min(wait_s, until - time.monotonic()))
        if ending.wait(left_s):
            return loss
        try:
            unit.connect()
        except DeviceError as error:
            loss = error
        else:
            note(f"{unit.name} is back")
            return None
        if until is not None and time.monotonic() >= until:
            return loss
    return loss


def stays_away(names: str, reason: DeviceError | None) -> DeviceError:
    """The error that ends a tuning."""
    return DeviceError(
        f"{names} does not come back ({reason}); everything measured is kept: run the same command again "
        "when the device answers"
    )
