"""The number of clients that an agent serves, and whether a client is still connected."""

from __future__ import annotations

import contextlib
import resource
import socket

from device_agent.contract.limits import LIMITS

# Open files of an agent: at most so many are asked for; those that it needs without any client, and those
# that a client and its session take.
_FILES = 4096
_OWN_FILES = 64
_FILES_A_CLIENT = 4
_MIN_CLIENTS = 2


def max_clients() -> int:
    """The largest number of clients; it first raises the limit of open files as far as possible."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # it stays as it is
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    if soft == resource.RLIM_INFINITY:
        return LIMITS.wire.clients
    spare = soft - _OWN_FILES - LIMITS.wire.pending_connections
    return max(_MIN_CLIENTS, min(LIMITS.wire.clients, spare // _FILES_A_CLIENT))


def hung_up(connection: socket.socket) -> bool:
    """Whether the other end has closed the connection."""
    try:
        return not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True
