"""The heartbeats of the boards that a command has: one thread, and one statement of the database for all."""

from __future__ import annotations

import threading
from typing import Protocol

from host.closing import Closing
from host.errors import EdgeError
from host.leases.table import RENEW_S, LeaseTable, Request


class Kept(Protocol):
    """What is kept by heartbeats.

    Attributes:
        request: that was granted.
    """

    request: Request

    def lose(self, reason: str) -> None:
        """Called once, from the thread of the heartbeats, when another may have the board."""


class Heartbeats(Closing):
    """Renews the leases of one table until each is given back or lost.

    While the database is away, no lease is lost: the next heartbeat asks again.

    Args:
        table: of the leases.
        renew_s: seconds between two heartbeats; `RENEW_S` if None.
    """

    def __init__(self, table: LeaseTable, renew_s: float | None = None) -> None:
        self._table = table
        self._renew_s = RENEW_S if renew_s is None else renew_s
        self._kept: dict[str, Kept] = {}
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, lease: Kept) -> None:
        """Keep a lease from now on."""
        with self._lock:
            self._kept[lease.request.ticket] = lease
            if self._thread is None:
                self._thread = threading.Thread(target=self._keep_renewing, name="leases", daemon=True)
                self._thread.start()

    def remove(self, lease: Kept) -> None:
        """Keep a lease no longer; nothing happens where it is not kept."""
        with self._lock:
            self._kept.pop(lease.request.ticket, None)

    def close(self) -> None:
        """End the heartbeats; leases that are not given back end by themselves."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join()

    def _keep_renewing(self) -> None:
        while not self._ending.wait(self._renew_s):
            with self._lock:
                kept = dict(self._kept)
            try:
                renewed = self._table.renew([lease.request for lease in kept.values()])
                lost = {
                    ticket: self._table.why_lost(lease.request)
                    for ticket, lease in kept.items()
                    if ticket not in renewed
                }
            except EdgeError:
                # It is asked again at the next beat: see the class.
                continue
            for ticket, reason in lost.items():
                with self._lock:
                    # One that was given back meanwhile is not lost.
                    lease = self._kept.pop(ticket, None)
                if lease is not None:
                    lease.lose(reason)
