"""Sockets to an SSH server: a direct connection, or through the proxy command of the user's configuration."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import Callable

from host.errors import DeviceError
from host.ssh.endpoint import Endpoint

CONNECT_S = 15.0
_ENDING_S = 5.0
# Unacknowledged data ends the connection after this time (Linux, tcp(7): TCP_USER_TIMEOUT).
_UNACKNOWLEDGED_MS = 30_000


def direct_socket(name: str, endpoint: Endpoint) -> socket.socket:
    """Connect to a server's port.

    Raises:
        DeviceError: it does not answer.
    """
    where = f"{endpoint.host}:{endpoint.port}"
    try:
        connected = socket.create_connection((endpoint.host, endpoint.port), timeout=CONNECT_S)
    except socket.gaierror as error:
        raise DeviceError(
            f"{name}: no host is called {endpoint.host} ({error.strerror}); check --host and the network"
        ) from error
    except ConnectionRefusedError as error:
        raise DeviceError(
            f"{name}: nothing listens at {where}; start the board's SSH server"
            " (sudo systemctl enable --now ssh) or name its port with --host user@address:port"
        ) from error
    except OSError as error:
        reason = f"no answer for {CONNECT_S:.0f} s" if isinstance(error, TimeoutError) else error.strerror
        raise DeviceError(
            f"{name}: {where} cannot be reached ({reason}); is the board on, and on this network?"
        ) from error
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED_MS)
    return connected


def proxy_socket(command: str) -> tuple[socket.socket, Callable[[], None]]:
    """Start a proxy command that is connected to the server by its standard input and output.

    Paramiko's own ProxyCommand never returns after the command ended; a socket pair reports the end.

    Returns:
        The local end of the socket pair, and a function that ends the command.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            ["/bin/sh", "-c", f"exec {command}"],
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def end() -> None:
        ours.close()
        process.terminate()
        try:
            process.wait(_ENDING_S)
        except subprocess.TimeoutExpired:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_ENDING_S)

    return ours, end
