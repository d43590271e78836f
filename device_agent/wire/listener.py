"""A listener that admits a client when its whole first request has arrived and has the secret.

One thread watches all connections that have not said who they are, so that a silent or slow one costs a
socket and nothing else. Such a connection has a deadline in all, not for each byte. There is room for some of
them; where that is used up the one that has been silent for longest goes: those that have a secret say it at
once.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
import time
from typing import Callable, Dict, List, NamedTuple, Optional

from device_agent.contract.limits import LIMITS
from device_agent.contract.protocol import PROTOCOL
from device_agent.contract.text import printable

_LIMITS = LIMITS.wire
_WIRE = PROTOCOL.wire
_KEEP_ALIVE = (
    ("TCP_KEEPIDLE", _WIRE.keep_alive_idle_s),
    ("TCP_KEEPINTVL", _WIRE.keep_alive_interval_s),
    ("TCP_KEEPCNT", _WIRE.keep_alive_probes),
)


class PendingConnection(NamedTuple):
    """A connection that is not admitted yet."""

    connection: socket.socket
    deadline_s: float
    data: bytearray


class Listener:
    """Listens on the loopback interface.

    Args:
        missing: how many bytes are missing of the first request that begins with these; 0 or less when it is
            complete.
        admit: called in the listener's thread with a connection and its first request; it answers at
            once, and keeps the connection or closes it. The connection does not block then, and nothing that
            follows the request was read.
        port: to listen on, 0 for any.
        log: takes a message for the log.
        failed: called if the listener cannot go on, in its thread, with the reason; by default the process
            ends: it must not live on as one that nobody can reach.
    """

    def __init__(
        self,
        missing: Callable[[bytes], int],
        admit: Callable[[socket.socket, bytes], None],
        port: int = 0,
        log: Callable[[str], None] = lambda text: write_stderr(text),
        failed: Callable[[str], None] = lambda reason: _end(reason),
    ) -> None:
        self._missing = missing
        self._admit = admit
        self._log = log
        self._failed = failed
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", port))
        self._socket.listen(64)
        self._socket.setblocking(False)
        self.port = int(self._socket.getsockname()[1])
        self._pending: Dict[int, PendingConnection] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._socket, selectors.EVENT_READ)
        self._wake_reader, self._wake_writer = os.pipe()
        self._selector.register(self._wake_reader, selectors.EVENT_READ)
        self._closed = False
        self._thread: Optional[threading.Thread] = None

    def open(self) -> None:
        """Starts the thread that accepts connections."""
        self._thread = threading.Thread(target=self._watch, name="listener", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops listening and drops connections that are not admitted yet."""
        self._closed = True
        os.write(self._wake_writer, b"x")
        if self._thread is not None:
            self._thread.join()
        for pending in list(self._pending.values()):
            self._drop(pending)
        self._socket.close()
        self._selector.close()
        os.close(self._wake_reader)
        os.close(self._wake_writer)

    def _watch(self) -> None:
        try:
            while not self._closed:
                self._poll()
        except BaseException as error:  # noqa: BLE001 - whatever it is, nobody else would notice
            self._failed("the listener failed: %s" % printable(repr(error)))

    def _poll(self) -> None:
        for key, _ in self._selector.select(self._poll_timeout_s()):
            if key.fileobj is self._socket:
                self._accept()
            elif key.fd in self._pending:
                self._receive(self._pending[key.fd])
        now = time.monotonic()
        for pending in [one for one in self._pending.values() if now >= one.deadline_s]:
            self._drop(pending)

    def _poll_timeout_s(self) -> Optional[float]:
        # Connections came in the order of the dictionary, and all have the same time.
        first = next(iter(self._pending.values()), None)
        return None if first is None else max(0.0, first.deadline_s - time.monotonic())

    def _accept(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except (BlockingIOError, ConnectionError):
            return  # the client is gone already
        except OSError:
            time.sleep(_WIRE.exhausted_s)
            return
        if len(self._pending) >= _LIMITS.pending_connections:
            self._drop(next(iter(self._pending.values())))
        connection.setblocking(False)
        self._pending[connection.fileno()] = PendingConnection(
            connection, time.monotonic() + _LIMITS.hello_s, bytearray()
        )
        self._selector.register(connection, selectors.EVENT_READ)

    def _receive(self, pending: PendingConnection) -> None:
        try:
            data = pending.connection.recv(self._missing(bytes(pending.data)))
        except BlockingIOError:
            return
        except OSError:
            data = b""
        pending.data.extend(data)
        if not data:
            self._drop(pending)
        elif self._missing(bytes(pending.data)) <= 0:
            self._forget(pending)
            self._admit_first(pending)

    def _admit_first(self, pending: PendingConnection) -> None:
        try:
            self._admit(pending.connection, bytes(pending.data))
        except (OSError, RuntimeError):
            # It went away at this moment, or there is no thread left for it: the listener goes on.
            pending.connection.close()
        except Exception as error:  # noqa: BLE001 - one connection must not end the listener for the others
            pending.connection.close()
            self._log("a first request was dropped, for which this agent has an error: %r" % error)

    def _forget(self, pending: PendingConnection) -> None:
        self._selector.unregister(pending.connection)
        del self._pending[pending.connection.fileno()]

    def _drop(self, pending: PendingConnection) -> None:
        self._forget(pending)
        pending.connection.close()


def configure_connection(connection: socket.socket) -> None:
    """Configures an admitted connection: it blocks, sends at once, and ends if its peer is gone."""
    connection.setblocking(True)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE:
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def refuse(connection: socket.socket, answers: List[bytes]) -> None:
    """Sends a last answer, if it can be sent at once, and closes."""
    try:
        for answer in answers:
            connection.send(answer, socket.MSG_DONTWAIT)
    except OSError:
        pass  # whoever does not listen is not waited for
    finally:
        connection.close()


def write_stderr(text: str) -> None:
    """Writes a line to stderr."""
    with contextlib.suppress(OSError):
        os.write(2, ("%s\n" % printable(text)).encode("utf-8", "backslashreplace"))


def _end(reason: str) -> None:
    write_stderr("%s; the process ends" % reason)
    os._exit(1)
