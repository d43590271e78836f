"""The wire protocol: a length, a JSON header, then raw bytes. The host has its own half of it.

One frame is a 4-byte big-endian header length, the header as JSON, and `blob_bytes` raw bytes (a header
field, 0 where absent). A request has `command`; a reply has `ok` and either its fields or `error`
(`kind`, `message`). The first request on any connection is `hello` with the schema and a secret.
"""

from __future__ import annotations

import json
import socket
import struct
from typing import Any, Callable, Dict, List, NamedTuple, Sequence, Tuple, Union

SCHEMA = "edgetlm/1"
MAX_HEADER_BYTES = 64 << 20
# Of the first request, whose sender is not known yet.
MAX_HELLO_BYTES = 4096
CHUNK_BYTES = 1 << 20

Buffer = Union[bytes, bytearray, memoryview]
Header = Dict[str, Any]

ITEM_BYTES = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "float16": 2,
    "bfloat16": 2,
    "int32": 4,
    "uint32": 4,
    "float32": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
}


class ClosedError(Exception):
    """The peer closed the connection."""


class AgentError(Exception):
    """A failure that the host is told about.

    Attributes:
        kind: what the host maps to one of its own errors ("bad_request", "denied", "busy",
            "no_session", "session_lost", "device_full", "bundle", "engine", "measure", "internal").
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class TensorData(NamedTuple):
    """One tensor as it travels: row-major bytes."""

    shape: Tuple[int, ...]
    dtype: str
    data: Buffer


def frame(header: Header, blobs: Sequence[Buffer] = ()) -> bytes:
    """Length and header of a frame; `blob_bytes` is filled in."""
    complete = dict(header, blob_bytes=sum(memoryview(blob).nbytes for blob in blobs))
    text = json.dumps(complete).encode()
    return struct.pack(">I", len(text)) + text


def send(connection: socket.socket, header: Header, blobs: Sequence[Buffer] = ()) -> None:
    """Sends one frame; `blob_bytes` is filled in."""
    connection.sendall(frame(header, blobs))
    for blob in blobs:
        if memoryview(blob).nbytes:
            connection.sendall(memoryview(blob).cast("B"))


def receive_exact(connection: socket.socket, count: int) -> bytearray:
    """Reads exactly `count` bytes.

    Raises:
        ClosedError: the peer closed before all of them came.
    """
    data = bytearray(count)
    view = memoryview(data)
    position = 0
    while position < count:
        got = connection.recv_into(view[position:], count - position)
        if got == 0:
            raise ClosedError("connection closed after %d of %d bytes" % (position, count))
        position += got
    return data


def receive_header(connection: socket.socket) -> Header:
    """Reads a frame's header; its blob is left on the connection.

    Raises:
        ClosedError: the peer is gone.
        AgentError: what came is not a frame.
    """
    (length,) = struct.unpack(">I", receive_exact(connection, 4))
    if length > MAX_HEADER_BYTES:
        raise _no_frame(length)
    return _parse(bytes(receive_exact(connection, length)))


def hello_missing(data: bytes) -> int:
    """Bytes that are missing of a first request that begins with `data`; 0 when more would be of no use."""
    if len(data) < 4:
        return 4 - len(data)
    (length,) = struct.unpack(">I", data[:4])
    return 0 if length > MAX_HELLO_BYTES else 4 + int(length) - len(data)


def check_hello(data: bytes, admit: Callable[[str], None]) -> Header:
    """Checks the first request of a connection and returns its header.

    Args:
        data: the whole frame.
        admit: takes the secret, or raises AgentError.

    Raises:
        AgentError: another protocol, or a secret that lets nobody in.
    """
    if hello_missing(data) != 0 or struct.unpack(">I", data[:4])[0] > MAX_HELLO_BYTES:
        raise _no_frame(struct.unpack(">I", data[:4])[0])
    header = _parse(data[4:])
    if header.get("command") != "hello" or header.get("schema") != SCHEMA:
        schema = str(header.get("schema"))[:80]
        raise AgentError("bad_request", "protocol %s expected, got %s" % (SCHEMA, schema))
    admit(str(header.get("secret", "")))
    return header


def _no_frame(length: int) -> AgentError:
    return AgentError("bad_request", "frame header of %d bytes is not of protocol %s" % (length, SCHEMA))


def _parse(text: bytes) -> Header:
    try:
        header = json.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise AgentError("bad_request", "frame header is not JSON: %s" % error) from error
    if isinstance(header, dict):
        size = header.get("blob_bytes", 0)
        if isinstance(size, int) and size >= 0:
            return header
    raise AgentError("bad_request", "frame header is not an object of protocol %s" % SCHEMA)


def discard_blob(connection: socket.socket, count: int) -> None:
    """Reads and drops `count` bytes, so that the next frame starts where it should."""
    while count > 0:
        count -= len(receive_exact(connection, min(count, CHUNK_BYTES)))


def error_reply(error: AgentError) -> Header:
    """The reply that tells the host of a failure."""
    return {"ok": False, "error": {"kind": error.kind, "message": " ".join(str(error).split())}}


def describe_tensors(tensors: Sequence[TensorData]) -> List[Dict[str, Any]]:
    """The header's description of tensors whose bytes follow one another in the blob."""
    return [{"shape": list(t.shape), "dtype": t.dtype} for t in tensors]


def split_tensors(descriptions: Sequence[Dict[str, Any]], blob: Buffer) -> List[TensorData]:
    """Tensors out of a blob.

    Raises:
        AgentError: the blob is not as long as the descriptions say, or a dtype is unknown.
    """
    view = memoryview(blob)
    tensors = []
    position = 0
    for description in descriptions:
        shape = tuple(int(d) for d in description["shape"])
        dtype = str(description["dtype"])
        size = tensor_bytes(shape, dtype)
        tensors.append(TensorData(shape, dtype, view[position : position + size]))
        position += size
    if position != view.nbytes:
        raise AgentError("bad_request", "tensors of %d bytes in a blob of %d" % (position, view.nbytes))
    return tensors


def tensor_bytes(shape: Sequence[int], dtype: str) -> int:
    """Size in bytes of a tensor.

    Raises:
        AgentError: the dtype cannot travel.
    """
    if dtype not in ITEM_BYTES:
        raise AgentError(
            "bad_request", "dtype %s cannot be sent; use one of %s" % (dtype, ", ".join(ITEM_BYTES))
        )
    size = ITEM_BYTES[dtype]
    for dimension in shape:
        size *= dimension
    return size
