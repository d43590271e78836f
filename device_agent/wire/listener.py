"""The door of a listener: nobody is served before a whole first request has come and let them in.

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

from device_agent.contract.text import printable

HANDSHAKE_S = 10.0
ROOM = 32
# Out of file descriptors, or of memory for one more connection.
_EXHAUSTED_S = 0.1
# A peer that is gone without a word is found out after about two minutes.
_KEEP_ALIVE = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))


class Knock(NamedTuple):
    """A connection that was not let in yet."""

    connection: socket.socket
    deadline_s: float
    data: bytearray


class Door:
    """Listens on the loopback interface.

    Args:
        missing: how many bytes are missing of the first request that begins with these; 0 or less when it is
            complete.
        admit: called in the door's thread with a connection and its first request; it answers at once, and
            keeps the connection or closes it. The connection does not block then, and nothing that follows
            the request was read.
        port: to listen on, 0 for any.
        note: takes a message for the log.
        deaf: called if the door cannot go on, in its thread, with the reason; by default the process ends:
            it must not live on as one that nobody can reach.
    """

    def __init__(
        self,
        missing: Callable[[bytes], int],
        admit: Callable[[socket.socket, bytes], None],
        port: int = 0,
        note: Callable[[str], None] = lambda text: say(text),
        deaf: Callable[[str], None] = lambda reason: _end(reason),
    ) -> None:
        self._missing = missing
        self._admit = admit
        self._note = note
        self._deaf = deaf
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(("127.0.0.1", port))
        self._listener.listen(64)
        self._listener.setblocking(False)
        self.port = int(self._listener.getsockname()[1])
        self._waiting: Dict[int, Knock] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._wake_reader, self._wake_writer = os.pipe()
        self._selector.register(self._wake_reader, selectors.EVENT_READ)
        self._closed = False
        self._thread: Optional[threading.Thread] = None

    def open(self) -> None:
        """Begins to answer."""
        self._thread = threading.Thread(target=self._watch, name="door", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops listening and drops who was not let in yet."""
        self._closed = True
        os.write(self._wake_writer, b"x")
        if self._thread is not None:
            self._thread.join()
        for knock in list(self._waiting.values()):
            self._drop(knock)
        self._listener.close()
        self._selector.close()
        os.close(self._wake_reader)
        os.close(self._wake_writer)

    def _watch(self) -> None:
        try:
            while not self._closed:
                self._turn()
        except BaseException as error:  # noqa: BLE001 - whatever it is, nobody else would notice
            self._deaf("the listener failed: %s" % printable(repr(error)))

    def _turn(self) -> None:
        for key, _ in self._selector.select(self._patience_s()):
            if key.fileobj is self._listener:
                self._answer()
            elif key.fd in self._waiting:
                self._hear(self._waiting[key.fd])
        now = time.monotonic()
        for knock in [one for one in self._waiting.values() if now >= one.deadline_s]:
            self._drop(knock)

    def _patience_s(self) -> Optional[float]:
        # Connections came in the order of the dictionary, and all have the same time.
        first = next(iter(self._waiting.values()), None)
        return None if first is None else max(0.0, first.deadline_s - time.monotonic())

    def _answer(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return  # whoever knocked is gone already
        except OSError:
            time.sleep(_EXHAUSTED_S)
            return
        if len(self._waiting) >= ROOM:
            self._drop(next(iter(self._waiting.values())))
        connection.setblocking(False)
        self._waiting[connection.fileno()] = Knock(connection, time.monotonic() + HANDSHAKE_S, bytearray())
        self._selector.register(connection, selectors.EVENT_READ)

    def _hear(self, knock: Knock) -> None:
        try:
            data = knock.connection.recv(self._missing(bytes(knock.data)))
        except BlockingIOError:
            return
        except OSError:
            data = b""
        knock.data.extend(data)
        if not data:
            self._drop(knock)
        elif self._missing(bytes(knock.data)) <= 0:
            self._forget(knock)
            self._let_in(knock)

    def _let_in(self, knock: Knock) -> None:
        try:
            self._admit(knock.connection, bytes(knock.data))
        except (OSError, RuntimeError):
            # It went away at this moment, or there is no thread left for it: the door stays open.
            knock.connection.close()
        except Exception as error:  # noqa: BLE001 - one who knocks must not close the door to the others
            knock.connection.close()
            self._note("a first request was dropped, for which this agent has an error: %r" % error)

    def _forget(self, knock: Knock) -> None:
        self._selector.unregister(knock.connection)
        del self._waiting[knock.connection.fileno()]

    def _drop(self, knock: Knock) -> None:
        self._forget(knock)
        knock.connection.close()


def welcome(connection: socket.socket) -> None:
    """Readies a connection that was let in: it blocks, sends at once, and ends if its peer is gone."""
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


def say(text: str) -> None:
    """Writes a line to stderr."""
    with contextlib.suppress(OSError):
        os.write(2, ("%s\n" % printable(text)).encode("utf-8", "backslashreplace"))


def _end(reason: str) -> None:
    say("%s; the process ends" % reason)
    os._exit(1)
