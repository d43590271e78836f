"""Sessions that are opened before there is a model for them.

Their processes start, and load their engines, while the host compiles the model.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor

from host.closing import Closing
from host.errors import EdgeError
from host.transport.device import Device
from host.transport.session import Session


class SessionsAhead(Closing):
    """Opens sessions in a thread, one after the other; a context that closes those that nobody has taken.

    Args:
        device: connected.
        engines: of the sessions, in the order in which they are opened.
        threads: that each engine uses.
        time_limit_s: of their commands.
    """

    def __init__(self, device: Device, engines: Iterable[str], threads: int, time_limit_s: float) -> None:
        self._device, self._threads = device, threads
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sessions")
        self._opening = {
            engine: self._thread.submit(device.open_session, engine, threads, time_limit_s)
            for engine in engines
        }

    def take(self, device: Device, engine: str, threads: int) -> Session | None:
        """A session that was opened, which is the caller's now.

        Returns:
            None where none was asked for with this device, engine and number of threads, or it could not be
            opened: the caller's own attempt then says why.
        """
        if device is not self._device or threads != self._threads or engine not in self._opening:
            return None
        try:
            return self._opening.pop(engine).result()
        except EdgeError:
            return None

    def close(self) -> None:
        """Close the sessions that are left; one that is being opened is closed as soon as it is open."""
        for opening in self._opening.values():
            if not opening.cancel():
                opening.add_done_callback(_closed)
        self._opening = {}
        self._thread.shutdown(wait=False)


def _closed(opened: Future[Session]) -> None:
    # A device that is closed meanwhile has ended its sessions.
    with contextlib.suppress(EdgeError):
        opened.result().close()
