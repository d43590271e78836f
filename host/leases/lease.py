"""A lease that this process has: waited for, and kept by heartbeats until it is given back."""

from __future__ import annotations

import time
from collections.abc import Callable

from host.closing import Closing
from host.errors import DeviceBusy, LeaseLost
from host.leases.heartbeats import Heartbeats
from host.leases.table import LeaseTable, Request

# How often a waiting command asks whether it is its turn.
_ASK_S = 1.0


def leased(
    table: LeaseTable,
    request: Request,
    wait_s: float = 0.0,
    note: Callable[[str], None] = lambda text: None,
    lost: Callable[[str], None] = lambda reason: None,
    heartbeats: Heartbeats | None = None,
) -> Lease:
    """Wait for a board and take it.

    Args:
        table: of the leases.
        request: the board and who wants it.
        wait_s: how long to stand in line.
        note: receives once who has the board.
        lost: see `Lease`.
        heartbeats: see `Lease`.

    Raises:
        DeviceBusy: another had it for all that time; the message says who.
        EdgeError: the database cannot be asked.
    """
    until = time.monotonic() + wait_s
    noted = False
    try:
        while (holder := table.take(request)) is not None:
            if time.monotonic() >= until:
                raise DeviceBusy(
                    f"{request.name}: {holder}; wait for it with --wait 10m, or see sdk fleet status"
                )
            if not noted:
                note(f"{request.name}: {holder}; waiting for it")
                noted = True
            time.sleep(min(_ASK_S, max(0.0, until - time.monotonic())))
    except BaseException:
        # Whoever goes away does not keep the others waiting.
        table.release(request)
        raise
    return Lease(table, request, lost, heartbeats)


class Lease(Closing):
    """A board that this process has.

    While the database is away, no other host can take the board, and the work goes on. Once it answers again,
    the lease is renewed, or another was faster and the board is lost.

    Args:
        table: of the leases.
        request: that was granted.
        lost: called once, from a thread, with the reason when another may have the board.
        heartbeats: of this table, which keep the board; None for some of its own.

    Attributes:
        request: that was granted.
    """

    def __init__(
        self,
        table: LeaseTable,
        request: Request,
        lost: Callable[[str], None] = lambda reason: None,
        heartbeats: Heartbeats | None = None,
    ) -> None:
        self.request = request
        self._table = table
        self._lost = lost
        self._reason = ""
        self._closed = False
        self._heartbeats = heartbeats or Heartbeats(table)
        self._alone = heartbeats is None
        self._heartbeats.add(self)

    def check(self) -> None:
        """Refuse to go on with a board that is no longer this process's.

        Raises:
            LeaseLost: it was taken; the message says why.
        """
        if self._reason:
            raise LeaseLost(
                f"{self.request.name}: its lease is lost, {self._reason}; run the same command again, with "
                "--wait 10m to stand in line"
            )

    def close(self) -> None:
        """Give the board back; a second call does nothing.

        Raises:
            EdgeError: the database cannot be asked; the lease ends by itself.
        """
        if self._closed:
            return
        self._closed = True
        self._heartbeats.remove(self)
        if self._alone:
            self._heartbeats.close()
        self._table.release(self.request)

    def lose(self, reason: str) -> None:
        """Called by the heartbeats: another may have the board."""
        self._reason = reason
        self._lost(reason)
