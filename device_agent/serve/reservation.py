"""Who has the device: one client at a time, the others wait in line or are told."""

from __future__ import annotations

import threading
import time
from typing import Callable, Dict, List, NamedTuple, Optional

from device_agent.errors import AgentError

# How often somebody who waits is looked after: whether it is still there.
_CHECK_S = 0.5


class Client(NamedTuple):
    """A connection.

    Attributes:
        number: of the connection, unique while the daemon runs.
        name: what it calls itself, as user@host.
        identity: a random word by which its host, coming back after a cut, names this connection.
    """

    number: int
    name: str
    identity: str = ""


class Holder(NamedTuple):
    """The client that has the device.

    Attributes:
        client: it.
        since_s: monotonic time at which it got the device.
        uses: sessions and other claims by it.
    """

    client: Client
    since_s: float
    uses: int

    def describe(self) -> str:
        """Who it is and since when, in words."""
        seconds = int(time.monotonic() - self.since_s)
        since = "%d s" % seconds if seconds < 120 else "%d min" % (seconds // 60)
        return "%s for %s" % (self.client.name, since)


class DeviceReservation:
    """The device's holder and those who wait for it, first come, first served."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._holder: Optional[Holder] = None
        self._queue: List[object] = []

    def acquire(
        self, client: Client, wait_s: float = 0.0, present: Callable[[], bool] = lambda: True
    ) -> None:
        """Gives a client the device, or one more use of it.

        Args:
            client: who wants it.
            wait_s: how long to wait for it.
            present: whether the client is still there, asked while it waits.

        Raises:
            AgentError: another client has it, and kept it for as long as this one waited.
        """
        until = time.monotonic() + wait_s
        place = object()
        with self._changed:
            self._queue.append(place)
            try:
                while not self._is_next(client, place):
                    left = until - time.monotonic()
                    if left <= 0 or not present():
                        raise self._busy(wait_s)
                    self._changed.wait(min(left, _CHECK_S))
                since_s = self._holder.since_s if self._holder else time.monotonic()
                uses = self._holder.uses if self._holder else 0
                self._holder = Holder(client, since_s, uses + 1)
            finally:
                self._queue.remove(place)
                self._changed.notify_all()

    def _is_next(self, client: Client, place: object) -> bool:
        if self._holder is not None:
            return self._holder.client.number == client.number
        return self._queue[0] is place

    def _busy(self, wait_s: float) -> AgentError:
        waited = " after %g s of waiting" % wait_s if wait_s else ""
        who = self._holder.describe() if self._holder else "somebody who came earlier"
        before = len(self._queue) - 1
        line = "; %d more wait" % before if before else ""
        return AgentError("busy", "the device is in use by %s%s%s" % (who, waited, line))

    def release(self, client: Client) -> None:
        """Ends one use of a client's; the device is free after the last."""
        with self._changed:
            holder = self._holder
            if holder is None or holder.client.number != client.number:
                return
            self._holder = holder._replace(uses=holder.uses - 1) if holder.uses > 1 else None
            self._changed.notify_all()

    def release_all(self, client: Client) -> None:
        """Ends all uses of a client that has gone."""
        with self._changed:
            if self._has(client):
                self._holder = None
                self._changed.notify_all()

    def await_end(self, client: Client, limit_s: float) -> None:
        """Waits until a client does not have the device any more, but not for longer than the limit."""
        with self._changed:
            self._changed.wait_for(lambda: not self._has(client), limit_s)

    def _has(self, client: Client) -> bool:
        return self._holder is not None and self._holder.client.number == client.number

    def holder(self) -> Optional[Holder]:
        """Who has the device now."""
        with self._changed:
            return self._holder

    def describe(self) -> Dict[str, object]:
        """The reply to `device.holder`."""
        with self._changed:
            holder, waiting = self._holder, len(self._queue)
        if holder is None:
            return {"holder": None, "waiting": waiting, "text": "nobody uses it"}
        fields = {
            "client": holder.client.name,
            "seconds": time.monotonic() - holder.since_s,
            "uses": holder.uses,
        }
        return {"holder": fields, "waiting": waiting, "text": "in use by %s" % holder.describe()}
