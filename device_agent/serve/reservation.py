"""The reservation of the device: one client has the device; others wait in a queue or are refused."""

from __future__ import annotations

import threading
import time
from typing import Callable, Dict, List, NamedTuple, Optional

from device_agent.errors import AgentError

# How often a waiting client's connection is checked.
_CHECK_S = 0.5


class Client(NamedTuple):
    """A connection.

    Attributes:
        number: of the connection, unique while the daemon runs.
        name: as the client reports it, such as user@host.
        identity: a random word by which its host refers to this connection after a loss.
    """

    number: int
    name: str
    identity: str = ""


class Holder(NamedTuple):
    """The client that has the device.

    Attributes:
        client: the client.
        since_s: monotonic time at which it got the device.
        uses: number of its sessions and other reservations.
    """

    client: Client
    since_s: float
    uses: int

    def describe(self) -> str:
        """The holder and its duration as text."""
        seconds = int(time.monotonic() - self.since_s)
        since = "%d s" % seconds if seconds < 120 else "%d min" % (seconds // 60)
        return "%s for %s" % (self.client.name, since)


class DeviceReservation:
    """The holder of the device and a first-come, first-served queue."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._holder: Optional[Holder] = None
        self._queue: List[object] = []

    def acquire(
        self, client: Client, wait_s: float = 0.0, present: Callable[[], bool] = lambda: True
    ) -> None:
        """Reserves the device for a client, or adds a use to its reservation.

        Args:
            client: that requests it.
            wait_s: seconds to wait for it.
            present: whether the client is still connected; called while it waits.

        Raises:
            AgentError: another client has the device for the whole time of waiting.
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
        """Ends all uses of a disconnected client."""
        with self._changed:
            if self._has(client):
                self._holder = None
                self._changed.notify_all()

    def await_end(self, client: Client, limit_s: float) -> None:
        """Waits until a client no longer has the device, but not longer than the limit."""
        with self._changed:
            self._changed.wait_for(lambda: not self._has(client), limit_s)

    def _has(self, client: Client) -> bool:
        return self._holder is not None and self._holder.client.number == client.number

    def holder(self) -> Optional[Holder]:
        """The current holder of the device."""
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
