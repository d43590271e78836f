"""A transport that bounds what a server may send, even before the server is authenticated.

Paramiko accepts packet lengths up to 4 GB, reads a first line of any length, and stores whatever a server
sends into a channel, even beyond the granted window. An attacker that answers controls all three.
"""

from __future__ import annotations

from typing import Any, ClassVar

import paramiko
from paramiko.common import MSG_CHANNEL_DATA, MSG_CHANNEL_EXTENDED_DATA
from paramiko.packet import Packetizer

from device_agent.contract.limits import LIMITS


class _BoundedPacketizer(Packetizer):  # type: ignore[misc]
    """Packets and first lines of a bounded size."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._banner_bytes = 0

    def read_all(self, n: int, check_rekey: bool = False) -> bytes:
        """Read `n` bytes; refuse more than a packet may have."""
        if n > LIMITS.ssh.packet_bytes:
            raise paramiko.SSHException(
                f"a packet of more than {LIMITS.ssh.packet_bytes} bytes was announced"
            )
        return bytes(super().read_all(n, check_rekey))

    def _read_timeout(self, timeout: float) -> bytes:
        """A piece of the lines that come before the first packet."""
        data = bytes(super()._read_timeout(timeout))
        self._banner_bytes += len(data)
        if self._banner_bytes > LIMITS.ssh.banner_bytes:
            raise paramiko.SSHException(f"more than {LIMITS.ssh.banner_bytes} bytes came before the protocol")
        return data


def _within_window(take: Any) -> Any:
    """A channel's handler of data; it ends the connection if more data is unread than a window allows."""

    def taken(channel: paramiko.Channel, message: paramiko.Message) -> None:
        take(channel, message)
        if len(channel.in_buffer) + len(channel.in_stderr_buffer) > LIMITS.ssh.backlog_bytes:
            raise paramiko.SSHException("the server sends more than the window that it was granted")

    return taken


class BoundedTransport(paramiko.Transport):  # type: ignore[misc]
    """A paramiko transport with bounded packets, first lines and channel buffers.

    Args:
        stream: a connected socket, or an object with its methods.
        window_bytes: what a server may send into a channel before it is read.
    """

    _channel_handler_table: ClassVar[dict[int, Any]] = {
        **paramiko.Transport._channel_handler_table,
        MSG_CHANNEL_DATA: _within_window(paramiko.Channel._feed),
        MSG_CHANNEL_EXTENDED_DATA: _within_window(paramiko.Channel._feed_extended),
    }

    def __init__(self, stream: Any, window_bytes: int) -> None:
        super().__init__(stream, default_window_size=window_bytes, packetizer_class=_BoundedPacketizer)
