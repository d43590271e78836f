"""The host's half of the wire protocol "edgetlm/1" (the agent has its own; see docs/wire.md).

One frame is a 4-byte big-endian header length, the header as JSON, and `blob_bytes` raw bytes. A request has
`command`; a reply has `ok` and either its fields or `error` with `kind` and `message`.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from device_agent.contract.fields import Fields
from device_agent.contract.limits import LIMITS
from device_agent.contract.protocol import PROTOCOL
from device_agent.contract.strict_json import parse
from device_agent.contract.tensors import numpy_type, tensor_sizes
from device_agent.contract.text import printable
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
from host.places import user_name
from host.transport.replies import fields_of

if TYPE_CHECKING:
    # Loaded where tensors travel: most of what is asked of an agent has none.
    import numpy as np

SCHEMA = PROTOCOL.wire.schema
_CONNECT_S = 10.0
# How long the agent may say nothing, or take nothing of a file. Nothing that it does takes as long, starting
# an executor and checking a bundle included.
SILENCE_S = 900.0
_LAST_ANSWER_S = 5.0
_CHUNK_BYTES = 1 << 20
# Memory for a large answer is taken in steps of this size at most.
_STEP_BYTES = 16 << 20

# The agent's kinds of failures, as the host's own errors.
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
    """The other end closed the connection; the caller raises an error with the reason."""


class Stream(Protocol):
    """The methods of a socket that a connection needs; a channel of SSH has them too."""

    def settimeout(self, seconds: float | None, /) -> None:
        """Longest wait of each of the following calls; None for no limit."""

    def sendall(self, data: bytes | bytearray | memoryview, /) -> None:
        """Send all bytes."""

    def recv_into(self, buffer: memoryview, /) -> int:
        """Receive the bytes that have come; returns their number, 0 once the other end has closed."""

    def close(self) -> None:
        """Close the connection."""


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
            hello = {"command": "hello", "schema": SCHEMA, "secret": secret, "client": client_name()}
            self.request({**hello, "identity": self.identity})
        except DisconnectedError as error:
            self.close()
            raise DeviceError(f"{peer} does not speak {SCHEMA} on port {port} ({error})") from error
        except EdgeError:
            self.close()
            raise
        self._socket.settimeout(None)

    def request(
        self,
        header: dict[str, Any],
        blobs: Sequence[bytes | memoryview] = (),
        silence_s: float | None = None,
    ) -> tuple[dict[str, Any], bytearray]:
        """Send one request and wait for its reply.

        Args:
            header: of the request.
            blobs: that follow it.
            silence_s: how long nothing may be taken of the request, or come of the reply; None for what it
                was before.

        Raises:
            DisconnectedError: the other end is gone, or says nothing.
            EdgeError: the error that the agent reports, or an answer that is none.
        """
        with self._waiting(silence_s):
            with self._sending():
                self._send(dict(header, blob_bytes=sum(memoryview(b).nbytes for b in blobs)))
                for blob in blobs:
                    self._send_bytes(memoryview(blob).cast("B"))
            return self._reply()

    def send_file(self, header: dict[str, Any], path: Path) -> dict[str, Any]:
        """Send a request whose blob is a file.

        Raises:
            DisconnectedError: the other end is gone.
            EdgeError: the error that the agent reports, or an answer that is none.
        """
        with path.open("rb") as file, self._waiting(SILENCE_S):
            left = path.stat().st_size
            with self._sending():
                self._send(dict(header, blob_bytes=left))
                while left:
                    # No more than was announced, should the file grow meanwhile.
                    chunk = file.read(min(left, _CHUNK_BYTES))
                    if not chunk:
                        raise DisconnectedError(f"{path} became shorter while it was sent")
                    self._socket.sendall(chunk)
                    left -= len(chunk)
            return self._reply()[0]

    @contextlib.contextmanager
    def _waiting(self, silence_s: float | None) -> Iterator[None]:
        """The longest wait of each step, for a while; None for what it was before."""
        if silence_s is None:
            yield
            return
        try:
            self._socket.settimeout(silence_s)
        except OSError as error:  # another thread has closed it
            raise DisconnectedError(str(error)) from error
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # it may be closed by now
                self._socket.settimeout(None)

    @contextlib.contextmanager
    def _sending(self) -> Iterator[None]:
        try:
            yield
        except (OSError, EOFError) as error:
            # An agent that takes no more of a request may have sent its reason before it closed the stream.
            with contextlib.suppress(DisconnectedError, OSError, EOFError):
                self._socket.settimeout(_LAST_ANSWER_S)
                self._reply()
            reason = "it takes nothing any more" if isinstance(error, TimeoutError) else str(error)
            raise DisconnectedError(reason) from error

    def _send_bytes(self, data: memoryview) -> None:
        # In pieces, as the time of a step is that of a whole call.
        for begin in range(0, len(data), _CHUNK_BYTES):
            self._socket.sendall(data[begin : begin + _CHUNK_BYTES])

    def _send(self, header: dict[str, Any]) -> None:
        text = json.dumps(header).encode()
        self._socket.sendall(struct.pack(">I", len(text)) + text)

    def _reply(self) -> tuple[dict[str, Any], bytearray]:
        try:
            header = self._header()
            fields = fields_of(self.peer, header)
            done = fields.truth("ok")
            blob = self._receive(_blob_bytes(fields, done))
        except TimeoutError as error:
            raise DisconnectedError("it does not answer") from error
        except (OSError, EOFError) as error:
            raise DisconnectedError(str(error)) from error
        except DeviceError:
            # Nothing that follows can be understood.
            self.close()
            raise
        if done:
            return header, blob
        failure = fields.object("error")
        kind, message = failure.name("kind"), failure.text("message")
        shown = printable(message, LIMITS.wire.message_characters)
        raise _ERRORS.get(kind, DeviceError)(f"{self.peer}: {shown}")

    def _header(self) -> dict[str, Any]:
        (length,) = struct.unpack(">I", self._receive(4))
        if length > LIMITS.wire.header_bytes:
            raise DisconnectedError(f"an answer that is not of {SCHEMA}")
        text = bytes(self._receive(length))
        # Values take many times the memory and the time of the text.
        if sum(map(text.count, (b",", b"{", b"["))) > LIMITS.wire.items:
            raise DeviceError(
                f"{self.peer}: an answer holds more than {LIMITS.wire.items} values; ask for less"
            )
        try:
            header = parse(text, LIMITS.wire.header_bytes, "an answer")
        except ValueError as error:
            raise DeviceError(f"{self.peer}: {error}; it does not speak {SCHEMA}") from error
        if not isinstance(header, dict):
            raise DeviceError(f"{self.peer}: an answer is no object; it does not speak {SCHEMA}")
        return header

    def _receive(self, count: int) -> bytearray:
        """Reads so many bytes; memory is taken as they come, whatever was announced."""
        data = bytearray()
        while len(data) < count:
            position = len(data)
            data.extend(bytes(min(count - position, max(_CHUNK_BYTES, position), _STEP_BYTES)))
            with memoryview(data) as view:
                while position < len(view):
                    got = self._socket.recv_into(view[position:])
                    if got == 0:
                        raise DisconnectedError("the connection was closed")
                    position += got
        return data

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def client_name() -> str:
    """The user and the host, for the people who share a device."""
    return f"{user_name()}@{socket.gethostname()}"


def pack(arrays: Sequence[np.ndarray]) -> tuple[list[dict[str, Any]], list[memoryview]]:
    """Arrays as they travel: descriptions for the header, bytes for the blob."""
    import numpy as np

    descriptions = [{"shape": list(array.shape), "dtype": str(array.dtype)} for array in arrays]
    flat = [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in arrays]
    return descriptions, [array.data for array in flat if array.size]


def unpack(descriptions: object, blob: bytearray, device: str = "the device") -> list[np.ndarray]:
    """Arrays out of a blob, without a copy.

    Args:
        descriptions: of the tensors, as they came.
        blob: their bytes.
        device: its name, for messages.

    Raises:
        DeviceError: these are no descriptions of tensors, or the blob is not as long as they say.
    """
    import numpy as np

    arrays = []
    position = 0
    for shape, name, size in tensor_sizes(fields_of(device, {"tensors": descriptions}), len(blob)):
        dtype = numpy_type(name)
        array = np.frombuffer(blob, dtype, size // dtype.itemsize, position) if size else np.empty(0, dtype)
        try:
            arrays.append(array.reshape(shape))
        except ValueError as error:  # none of its elements, and the sizes beside the zero are too large
            raise DeviceError(f"{device}: a tensor of shape {list(shape)} cannot be used: {error}") from error
        position += size
    return arrays


def _blob_bytes(fields: Fields, done: bool) -> int:
    """Bytes that follow an answer: those of the tensors that it describes."""
    announced = fields.whole("blob_bytes", 0, LIMITS.wire.blob_bytes, 0)
    if not done or not fields.has("tensors"):
        if announced:
            raise fields.wrong("blob_bytes", "no bytes")
    else:
        tensor_sizes(fields, announced)
    return announced
