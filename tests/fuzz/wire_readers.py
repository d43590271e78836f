"""What Python's executor makes of bytes from a host: the readers beside which the native ones are compared.

Each raises what the executor would answer with: `AgentError` or `ClosedError`.
"""

from __future__ import annotations

import struct

from device_agent.contract.tensors import tensor_sizes
from device_agent.execute import executor
from device_agent.measure.measurement import plan_of
from device_agent.wire import frames


class Received:
    """A connection that holds some bytes and then ends; what is sent is thrown away."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)

    def recv_into(self, buffer: memoryview) -> int:
        """What there is."""
        part, self._data = self._data[: len(buffer)], self._data[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)

    def settimeout(self, seconds: float | None) -> None:
        """Nothing here waits."""

    def sendall(self, data: object) -> None:
        """Thrown away."""

    def close(self) -> None:
        """Nothing to close."""


def header_in(data: bytes) -> frames.Header:
    """The header whose text is `data`."""
    framed = struct.pack(">I", len(data)) + data
    return frames.receive_header(Received(framed))  # type: ignore[arg-type]


def read_frame(data: bytes) -> None:
    """A request."""
    header = frames.receive_header(Received(data))  # type: ignore[arg-type]
    frames.blob_bytes(header, executor._blob_limit(header))
    frames.fields_of(header).seconds("time_limit_s", 0.0)
    frames.fields_of(header).name("command")


def read_hello(data: bytes) -> None:
    """The first request, with any secret."""
    frames.check_hello(data, lambda secret: None)


def read_tensors(data: bytes) -> None:
    """The description of tensors."""
    header = header_in(data)
    tensor_sizes(frames.fields_of(header), frames.blob_bytes(header, 1 << 63))


def read_plan(data: bytes) -> None:
    """The plan of a measurement."""
    plan_of(header_in(data))
