"""Channels of an SSH connection with the interface of sockets, and local ports that are forwarded to them."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import paramiko

# The largest piece that SSH carries in one packet without asking (RFC 4254, 5.2: 32768 bytes).
_PACKET_BYTES = 32768
_PUMP_BYTES = 65536
_ACCEPT_S = 60.0


class ChannelStream:
    """A channel with the calls of a socket and a socket's errors.

    Paramiko's channels differ in three ways: they have no `recv_into`, a channel that the other end closed
    raises a bare OSError, and sending on one that was shut down reports zero bytes for ever.

    Args:
        channel: an open one.
    """

    def __init__(self, channel: paramiko.Channel) -> None:
        self._channel = channel

    def settimeout(self, seconds: float | None, /) -> None:
        """Set the longest wait of each following call; None for no limit."""
        self._channel.settimeout(seconds)

    def sendall(self, data: bytes | bytearray | memoryview, /) -> None:
        """Send everything.

        Raises:
            ConnectionResetError: the other end is gone.
            TimeoutError: it took nothing for too long.
        """
        view = memoryview(data).cast("B")
        position = 0
        while position < len(view):
            try:
                sent = self._channel.send(bytes(view[position : position + _PACKET_BYTES]))
            except TimeoutError:
                raise
            except (OSError, EOFError, paramiko.SSHException) as error:
                raise ConnectionResetError(f"the SSH channel is closed ({error})") from error
            if sent == 0:
                raise ConnectionResetError("the SSH channel is closed")
            position += sent

    def recv_into(self, buffer: memoryview, /) -> int:
        """Receive what there is; 0 once the other end has closed.

        Raises:
            TimeoutError: nothing came for too long.
        """
        data = self._channel.recv(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def recv(self, size: int) -> bytes:
        """Receive at most so many bytes; b"" once the other end has closed."""
        return bytes(self._channel.recv(size))

    def finish_sending(self) -> None:
        """Signal the end of the data to the other end."""
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            self._channel.shutdown_write()

    def close(self) -> None:
        """Close it; more than once is no error."""
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            self._channel.close()


class Forwarder:
    """Forwards a port of this machine's loopback interface to a port of the board, for one connection.

    It is for clients that open their own sockets (TVM's RPC client). The first connection by a process of
    this user is accepted; then the port closes.

    Attributes:
        port: where it listens.

    Args:
        dial: opens the channel to the board; raises OSError if that fails.
    """

    def __init__(self, dial: Callable[[], ChannelStream]) -> None:
        self._dial = dial
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=8)
        self._listener.settimeout(_ACCEPT_S)
        self.port = int(self._listener.getsockname()[1])
        self._lock = threading.Lock()
        self._closed = False
        self._ends: list[socket.socket | ChannelStream] = []
        self._thread = threading.Thread(target=self._serve, name="ssh-forward", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        client = self._accepted()
        if client is None:
            return
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.settimeout(None)
        try:
            board = self._dial()
        except OSError:
            client.close()  # the client says that nothing answers
            return
        with self._lock:
            if self._closed:
                client.close()
                board.close()
                return
            self._ends += [client, board]
        back = threading.Thread(target=_pump_back, args=(board, client), name="ssh-forward-back", daemon=True)
        back.start()
        _pump(client, board)
        back.join()
        client.close()
        board.close()

    def _accepted(self) -> socket.socket | None:
        with self._listener:
            while True:
                try:
                    client, peer = self._listener.accept()
                except OSError:
                    return None  # closed, or no client connected
                if _owner(peer[1], self.port) in (None, os.getuid()):
                    return client
                client.close()

    def close(self) -> None:
        """End it with the connection that it carries; more than once is no error."""
        with self._lock:
            self._closed = True
            ends = list(self._ends)
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the accept
        self._listener.close()
        for end in ends:
            if isinstance(end, socket.socket):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            else:
                end.close()
        self._thread.join()


def _pump(client: socket.socket, board: ChannelStream) -> None:
    with contextlib.suppress(OSError):
        while data := client.recv(_PUMP_BYTES):
            board.sendall(data)
    board.finish_sending()


def _pump_back(board: ChannelStream, client: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := board.recv(_PUMP_BYTES):
            client.sendall(data)
    # The client's next read ends, and with it the other direction.
    with contextlib.suppress(OSError):
        client.shutdown(socket.SHUT_RDWR)


def _owner(client_port: int, server_port: int) -> int | None:
    """User id of the process at the other end of a loopback connection, None where it is not known."""
    try:
        lines = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    except OSError:
        return None
    local, remote = f"0100007F:{client_port:04X}", f"0100007F:{server_port:04X}"
    for line in lines:
        fields = line.split()
        if fields[1] == local and fields[2] == remote:
            return int(fields[7])
    return None
