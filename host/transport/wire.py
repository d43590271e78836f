"""The host's half of the wire protocol "edgetlm/1" (the agent has its own; see docs/wire.md).

One frame is a 4-byte big-endian header length, the header as JSON, and `blob_bytes` raw bytes. A request has
`command`; a reply has `ok` and either its fields or `error` with `kind` and `message`.
"""

from __future__ import annotations

import getpass
import json
import math
import secrets
import socket
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from host.errors import (
    BundleError,
    DeviceBusy,
    DeviceError,
    DeviceFull,
    EdgeError,
    EngineError,
    MeasureError,
    SessionLost,
)

SCHEMA = "edgetlm/1"
_MAX_HEADER_BYTES = 64 << 20
_CONNECT_S = 10.0
_CHUNK_BYTES = 1 << 20

# What the agent says went wrong, as the host's own errors.
_ERRORS: dict[str, type[EdgeError]] = {
    "busy": DeviceBusy,
    "device_full": DeviceFull,
    "bundle": BundleError,
    "engine": EngineError,
    "measure": MeasureError,
    "session_lost": SessionLost,
    "no_session": SessionLost,
}


class DisconnectedError(Exception):
    """The other end closed the connection; whoever knows why makes an error of it."""


class Stream(Protocol):
    """What a connection needs of a socket; a channel of SSH has it too."""

    def settimeout(self, seconds: float | None, /) -> None:
        """Longest wait of each of the following calls; None for no limit."""

    def sendall(self, data: bytes | bytearray | memoryview, /) -> None:
        """Send everything."""

    def recv_into(self, buffer: memoryview, /) -> int:
        """Receive what there is; 0 once the other end has closed."""

    def close(self) -> None:
        """Close it."""


# From a port of the device's loopback interface to a connection with it; OSError where nothing answers.
Dial = Callable[[int], Stream]


def dial_loopback(port: int) -> Stream:
    """Connect to a port of this machine.

    Raises:
        OSError: nothing answers there.
    """
    connected = socket.create_connection(("127.0.0.1", port), timeout=_CONNECT_S)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connected


class Connection:
    """One authenticated connection: a request, then its reply.

    Attributes:
        identity: by which another connection names this one after it was cut (`device.replace`).

    Args:
        port: on the device's loopback interface.
        secret: the agent's token or the session's key.
        peer: name of the other end in messages.
        dial: how the device's ports are reached.

    Raises:
        DeviceError: nothing answers there, it speaks another protocol, or it refuses the secret.
    """

    def __init__(self, port: int, secret: str, peer: str, dial: Dial = dial_loopback) -> None:
        self.peer = peer
        self.identity = secrets.token_hex(16)
        try:
            self._socket = dial(port)
        except OSError as error:
            raise DeviceError(f"{peer} does not answer on port {port} ({error}); connect again") from error
        try:
            hello = {"command": "hello", "schema": SCHEMA, "secret": secret, "client": _client()}
            self.request({**hello, "identity": self.identity})
        except (DisconnectedError, OSError) as error:
            self.close()
            raise DeviceError(f"{peer} does not speak {SCHEMA} on port {port} ({error})") from error
        except EdgeError:
            self.close()
            raise
        self._socket.settimeout(None)

    def request(
        self, header: dict[str, Any], blobs: Sequence[bytes | memoryview] = ()
    ) -> tuple[dict[str, Any], bytearray]:
        """Send one request and wait for its reply.

        Raises:
            DisconnectedError: the other end is gone.
            EdgeError: the error that the agent reports.
        """
        try:
            self._send(dict(header, blob_bytes=sum(memoryview(b).nbytes for b in blobs)))
            for blob in blobs:
                self._socket.sendall(blob)
            return self._reply()
        except (ConnectionError, TimeoutError, EOFError) as error:
            raise DisconnectedError(str(error)) from error

    def send_file(self, header: dict[str, Any], path: Path) -> dict[str, Any]:
        """Send a request whose blob is a file.

        Raises:
            DisconnectedError: the other end is gone.
            EdgeError: the error that the agent reports.
        """
        try:
            with path.open("rb") as file:
                left = path.stat().st_size
                self._send(dict(header, blob_bytes=left))
                while left:
                    # No more than was announced, should the file grow meanwhile.
                    chunk = file.read(min(left, _CHUNK_BYTES))
                    if not chunk:
                        raise DisconnectedError(f"{path} became shorter while it was sent")
                    self._socket.sendall(chunk)
                    left -= len(chunk)
            return self._reply()[0]
        except (ConnectionError, TimeoutError, EOFError) as error:
            raise DisconnectedError(str(error)) from error

    def _send(self, header: dict[str, Any]) -> None:
        text = json.dumps(header).encode()
        self._socket.sendall(struct.pack(">I", len(text)) + text)

    def _reply(self) -> tuple[dict[str, Any], bytearray]:
        (length,) = struct.unpack(">I", self._receive(4))
        if length > _MAX_HEADER_BYTES:
            raise DisconnectedError(f"an answer that is not of {SCHEMA}")
        header: dict[str, Any] = json.loads(self._receive(length))
        blob = self._receive(int(header.get("blob_bytes", 0)))
        if header.get("ok"):
            return header, blob
        error = header.get("error", {})
        kind, message = str(error.get("kind", "internal")), str(error.get("message", "no reason given"))
        raise _ERRORS.get(kind, DeviceError)(f"{self.peer}: {message}")

    def _receive(self, count: int) -> bytearray:
        data = bytearray(count)
        view = memoryview(data)
        position = 0
        while position < count:
            got = self._socket.recv_into(view[position:])
            if got == 0:
                raise DisconnectedError("the connection was closed")
            position += got
        return data

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def _client() -> str:
    """Who asks, for the people who share a device."""
    return f"{getpass.getuser()}@{socket.gethostname()}"


def pack(arrays: Sequence[np.ndarray]) -> tuple[list[dict[str, Any]], list[memoryview]]:
    """Arrays as they travel: descriptions for the header, bytes for the blob."""
    descriptions = [{"shape": list(array.shape), "dtype": str(array.dtype)} for array in arrays]
    flat = [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in arrays]
    return descriptions, [array.data for array in flat if array.size]


def unpack(descriptions: Sequence[dict[str, Any]], blob: bytearray) -> list[np.ndarray]:
    """Arrays out of a blob, without a copy.

    Raises:
        DeviceError: the blob is not as long as the descriptions say.
    """
    arrays = []
    position = 0
    for description in descriptions:
        dtype = numpy_type(str(description["dtype"]))
        count = math.prod(description["shape"])
        array = np.frombuffer(blob, dtype, count, position) if count else np.empty(0, dtype)
        arrays.append(array.reshape(description["shape"]))
        position += array.nbytes
    if position != len(blob):
        raise DeviceError(f"the device sent {len(blob)} bytes for tensors of {position}; update its agent")
    return arrays


def numpy_type(name: str) -> np.dtype[Any]:
    """NumPy's type for a name of the wire; bfloat16 is that of ml_dtypes."""
    if name == "bfloat16":
        import ml_dtypes

        kind: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return kind
    return np.dtype(name)
