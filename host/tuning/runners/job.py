"""What the boards of a fleet share: the queue of programs, and one lane for each board.

Everything is guarded by one lock. A program is in exactly one place: in the queue, with one lane, or
done; so none is lost and none is measured twice. A board from which a program is taken away, because it
hangs, does not hold it any more: whatever it says later does not count.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from host.errors import DeviceBusy, DeviceError
from host.tuning.runners.connection import Unit
from host.tuning.runners.reconnect import Patience
from host.tuning.runners.single import LOSSES, fault_of
from host.tuning.tasks import Item, Outcome


@dataclass(eq=False)
class Turn:
    """A program in the queue or on a board.

    Attributes:
        item: the program.
        lost_on: boards that went away from it.
    """

    item: Item
    lost_on: list[str] = field(default_factory=list)


@dataclass(eq=False)
class Lane:
    """One board and what it is doing.

    Attributes:
        unit: the board.
        waits: seconds before each attempt to connect again; starts anew when it has measured something.
        turn: what it has to measure; None between two, and once it was taken away.
        since: when the call under way began; None where there is none, and once it was found to hang.
        away_since: when it went away; None while it is there.
        reason: what it went away with.
        looked_at: whether it was there once, or was found away, so that nobody waits for it at the start.
        measured: programs since the last look at its speed.
        rest: outcomes of the fleet until the next look at a board that measures nothing.
    """

    unit: Unit
    waits: Iterator[float]
    turn: Turn | None = None
    since: float | None = None
    away_since: float | None = None
    reason: DeviceError | None = None
    looked_at: bool = False
    measured: int = 0
    rest: int = 0


class Queue:
    """Programs and lanes; see the head of this module.

    Args:
        units: the boards.
        patience: with boards that went away.

    Attributes:
        changed: the lock, notified when something happened.
        lanes: one a board.
        outcomes: how many there were.
    """

    def __init__(self, units: Sequence[Unit], patience: Patience) -> None:
        self.changed = threading.Condition()
        self.lanes = tuple(Lane(unit, patience.waits()) for unit in units)
        self.outcomes = 0
        self._patience = patience
        self._waiting: deque[Turn] = deque()
        self._done: deque[Outcome] = deque()
        self._more: Callable[[], bool] = lambda: True

    def put(self, items: Sequence[Item], more: Callable[[], bool]) -> None:
        """Add programs behind the others; `more` says whether further ones may begin."""
        with self.changed:
            self._more = more
            for item in items:
                if item.library is None:
                    self._done.append(Outcome(item, None, item.failure))
                else:
                    self._waiting.append(Turn(item))
            self.changed.notify_all()

    def pop(self) -> Outcome | None:
        """An outcome, if there is one; with the lock."""
        if not self._done:
            return None
        self.outcomes += 1
        return self._done.popleft()

    def over(self) -> bool:
        """Whether time is up and nothing is under way; what has not begun is dropped then. With the lock."""
        if self._more() or any(lane.turn for lane in self.lanes):
            return False
        self._waiting.clear()
        return True

    def clear(self) -> None:
        """Drop what has not begun."""
        with self.changed:
            self._waiting.clear()
            self.changed.notify_all()

    def take(self, lane: Lane, usable: bool) -> Turn | None:
        """The next program for a board that is usable; with the lock.

        A program that a board went away from is for another board, as long as there is one.
        """
        if not usable or lane.away_since is not None or not self._waiting or not self._more():
            return None
        name = lane.unit.name
        alone = all(one is lane or one.away_since is not None for one in self.lanes)
        for turn in self._waiting:
            if alone or name not in turn.lost_on:
                self._waiting.remove(turn)
                lane.turn = turn
                lane.measured += 1
                return turn
        return None

    def finish(self, lane: Lane, turn: Turn, outcome: Outcome) -> None:
        """A board has measured its program; does nothing where that was taken away meanwhile."""
        with self.changed:
            if lane.turn is turn:
                lane.turn = None
                lane.waits = self._patience.waits()
                self._done.append(outcome)
                self.changed.notify_all()

    def lose(self, lane: Lane, loss: DeviceError) -> None:
        """A board is away: its program goes to the front of the queue."""
        with self.changed:
            lane.away_since = lane.away_since or time.monotonic()
            lane.reason, lane.looked_at, lane.since = loss, True, None
            self._give_back(lane, at_fault=not isinstance(loss, DeviceBusy))
            self.changed.notify_all()

    def hanging(self) -> list[tuple[Lane, DeviceError]]:
        """The boards that have just been found to hang, which are away from now on; with the lock."""
        limit_s = self._patience.overdue_s
        found = []
        for lane in self.lanes:
            if lane.since is not None and time.monotonic() - lane.since >= limit_s:
                found.append((lane, DeviceError(f"{lane.unit.name} hangs: no answer for {limit_s:.3g} s")))
                self.lose(*found[-1])
        return found

    def deserted(self) -> bool:
        """Whether every board has been away for longer than anybody waits; with the lock."""
        away = [lane.away_since for lane in self.lanes if lane.away_since is not None]
        return len(away) == len(self.lanes) and time.monotonic() - max(away) > self._patience.limit_s

    def _give_back(self, lane: Lane, at_fault: bool) -> None:
        turn, lane.turn = lane.turn, None
        if turn is None:
            return
        if at_fault:
            turn.lost_on.append(lane.unit.name)
        if len(turn.lost_on) == LOSSES:
            fault = fault_of(turn.item, LOSSES)
            self._done.append(Outcome(turn.item, None, fault, lane.unit.name))
        else:
            self._waiting.appendleft(turn)
