"""Sessions that are opened before there is a model for them.

Their processes start, and load their engines, while the host compiles the model.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from queue import SimpleQueue

from host.closing import Closing
from host.errors import EdgeError, EngineError
from host.transport.device import Device
from host.transport.session import Session


class PrestartedSessions(Closing):
    """Opens sessions in a thread, one after the other; a context that closes those that nobody has taken.

    The thread closes them too: a device answers one request at a time, and it may be opening another session.
    Neither the end of the context nor that of the process waits for the thread.

    Args:
        device: connected.
        engines: of the sessions, in the order in which they are opened; one for each engine.
        threads: that each engine uses.
        time_limit_s: of their commands.
    """

    def __init__(self, device: Device, engines: Iterable[str], threads: int, time_limit_s: float) -> None:
        self._device, self._threads = device, threads
        self._opening: dict[str, Future[Session]] = {engine: Future() for engine in dict.fromkeys(engines)}
        self._unused: SimpleQueue[Future[Session] | None] = SimpleQueue()
        if self._opening:
            threading.Thread(
                target=_open_and_close,
                args=(device, dict(self._opening), threads, time_limit_s, self._unused),
                name="sessions",
                # It may be compiling what the engine needs, which the end of the connection does not stop.
                daemon=True,
            ).start()

    def take(self, device: Device, engine: str, threads: int) -> Session | None:
        """A session that was opened, which is the caller's now.

        Returns:
            None where none was asked for with this device, engine and number of threads, or the device went
            away or was busy: the caller's own attempt then says why.

        Raises:
            EngineError: the engine cannot be used there.
        """
        if device is not self._device or threads != self._threads or engine not in self._opening:
            return None
        try:
            return self._opening.pop(engine).result()
        except EngineError:
            raise
        except EdgeError:
            return None

    def close(self) -> None:
        """Have the sessions closed that are left, also one that is being opened; this waits for none."""
        for opening in self._opening.values():
            if not opening.cancel():
                self._unused.put(opening)
        self._opening = {}
        self._unused.put(None)


def _open_and_close(
    device: Device,
    openings: Mapping[str, Future[Session]],
    threads: int,
    time_limit_s: float,
    unused: SimpleQueue[Future[Session] | None],
) -> None:
    """Open the sessions that are not cancelled before, then close what comes, until None does."""
    for engine, opening in openings.items():
        if not opening.set_running_or_notify_cancel():
            continue
        try:
            opening.set_result(device.open_session(engine, threads, time_limit_s))
        except BaseException as error:  # noqa: BLE001  # raised where the session is taken
            opening.set_exception(error)
    while (opened := unused.get()) is not None:
        if opened.exception() is None:
            # A device that is closed meanwhile has ended its sessions.
            with contextlib.suppress(EdgeError):
                opened.result().close()
