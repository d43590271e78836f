"""The wire protocol: a length, a JSON header, then raw bytes. The host has its own half of it.

Nothing that comes is believed: headers are strict JSON of bounded size, fields are looked at before they are
used (`fields_of`), and memory for raw bytes grows with what has arrived, never with what was announced.

One frame is a 4-byte big-endian header length, the header as JSON, and `blob_bytes` raw bytes (a header
field, 0 where absent). A request has `command`; a reply has `ok` and either its fields or `error`
(`kind`, `message`). The first request on any connection is `hello` with the schema and a secret.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from typing import Any, Callable, Dict, List, NamedTuple, Sequence, Tuple, Union

from device_agent.contract.fields import Fields
from device_agent.contract.limits import LIMITS
from device_agent.contract.protocol import PROTOCOL
from device_agent.contract.strict_json import parse
from device_agent.contract.tensors import tensor_sizes
from device_agent.contract.text import printable
from device_agent.errors import AgentError, ClosedError

SCHEMA = PROTOCOL.wire.schema
CHUNK_BYTES = 1 << 20
# Memory for a large blob is taken in steps of this size at most.
_STEP_BYTES = 16 << 20

Buffer = Union[bytes, bytearray, memoryview]
Header = Dict[str, Any]

ITEM_BYTES = LIMITS.item_bytes
_LIMITS = LIMITS.wire


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
    """Sends one frame; `blob_bytes` is filled in. An answer that is too large is replaced by an error."""
    start = frame(header, blobs)
    if len(start) - 4 > _LIMITS.header_bytes:
        text = "the answer's header has %d bytes, at most %d are sent; ask for less"
        error = AgentError("bad_request", text % (len(start) - 4, _LIMITS.header_bytes))
        start, blobs = frame(error_reply(error)), ()
    connection.sendall(start)
    for blob in blobs:
        if memoryview(blob).nbytes:
            connection.sendall(memoryview(blob).cast("B"))


def receive_exact(connection: socket.socket, count: int) -> bytearray:
    """Reads exactly `count` bytes; memory is taken as they come.

    Raises:
        ClosedError: the peer closed before all of them came.
    """
    data = bytearray()
    while len(data) < count:
        position = len(data)
        data.extend(bytes(min(count - position, max(CHUNK_BYTES, position), _STEP_BYTES)))
        with memoryview(data) as view:
            while position < len(view):
                got = connection.recv_into(view[position:])
                if got == 0:
                    raise ClosedError("connection closed after %d of %d bytes" % (position, count))
                position += got
    return data


def receive_header(connection: socket.socket, limit: int = _LIMITS.request_bytes) -> Header:
    """Reads a frame's header; its blob is left on the connection.

    Args:
        connection: to read from.
        limit: longest header.

    Raises:
        ClosedError: the peer is gone.
        AgentError: what came is not a frame.
    """
    (length,) = struct.unpack(">I", receive_exact(connection, 4))
    if length > limit:
        raise _no_frame(length)
    return _parse(bytes(receive_exact(connection, length)), limit)


def blob_bytes(header: Header, limit: int) -> int:
    """Size of a frame's blob.

    Args:
        header: of the frame.
        limit: largest blob that its command may have.

    Raises:
        AgentError: it is larger: the blob is not read, so nothing that follows can be understood.
    """
    size = int(header.get("blob_bytes", 0))
    if size > limit:
        text = "%d bytes were announced for %s, at most %d are taken; the connection ends"
        command = printable(header.get("command"), _LIMITS.name_characters)
        raise AgentError("bad_request", text % (size, command, limit))
    return size


def most_tensor_bytes() -> int:
    """Largest blob of tensors: what the protocol allows, and never more than this machine's memory."""
    return min(_LIMITS.blob_bytes, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def fields_of(header: Header, what: str = "") -> Fields:
    """Typed access to a header; a wrong field is an AgentError of the kind "bad_request"."""
    prefix = "%s: " % printable(what, _LIMITS.name_characters) if what else ""
    return Fields(header, lambda text: AgentError("bad_request", prefix + text))


def hello_missing(data: bytes) -> int:
    """Bytes that are missing of a first request that begins with `data`; 0 when more would be of no use."""
    if len(data) < 4:
        return 4 - len(data)
    (length,) = struct.unpack(">I", data[:4])
    return 0 if length > _LIMITS.hello_bytes else 4 + int(length) - len(data)


def check_hello(data: bytes, admit: Callable[[str], None]) -> Header:
    """Checks the first request of a connection and returns its header.

    Args:
        data: the whole frame.
        admit: takes the secret, or raises AgentError.

    Raises:
        AgentError: another protocol, or a secret that lets nobody in.
    """
    if hello_missing(data) != 0 or struct.unpack(">I", data[:4])[0] > _LIMITS.hello_bytes:
        raise _no_frame(struct.unpack(">I", data[:4].ljust(4, b"\0"))[0])
    header = _parse(data[4:], _LIMITS.hello_bytes)
    if header.get("command") != "hello" or header.get("schema") != SCHEMA:
        schema = printable(header.get("schema"), _LIMITS.name_characters)
        raise AgentError("bad_request", "protocol %s expected, got %s" % (SCHEMA, schema))
    blob_bytes(header, 0)
    fields = fields_of(header, "hello")
    for name in ("client", "identity"):
        fields.text(name, standard="")
    admit(fields.text("secret", standard=""))
    return header


def _no_frame(length: int) -> AgentError:
    return AgentError("bad_request", "frame header of %d bytes is not of protocol %s" % (length, SCHEMA))


def _parse(text: bytes, limit: int) -> Header:
    try:
        header = parse(text, limit, "a frame header")
    except ValueError as error:
        raise AgentError("bad_request", str(error)) from error
    if isinstance(header, dict):
        size = header.get("blob_bytes", 0)
        if isinstance(size, int) and not isinstance(size, bool) and size >= 0:
            return header
    raise AgentError("bad_request", "frame header is not an object of protocol %s" % SCHEMA)


def error_reply(error: AgentError) -> Header:
    """The reply that reports a failure to the host."""
    return {
        "ok": False,
        "error": {"kind": error.kind, "message": printable(error, _LIMITS.message_characters)},
    }


def describe_tensors(tensors: Sequence[TensorData]) -> List[Dict[str, Any]]:
    """The header's description of tensors whose bytes follow one another in the blob."""
    return [{"shape": list(t.shape), "dtype": t.dtype} for t in tensors]


def split_tensors(descriptions: object, blob: Buffer) -> List[TensorData]:
    """Tensors out of a blob.

    Raises:
        AgentError: these are no descriptions of tensors, or the blob is not as long as they say.
    """
    view = memoryview(blob)
    tensors = []
    position = 0
    for shape, dtype, size in tensor_sizes(fields_of({"tensors": descriptions}), view.nbytes):
        tensors.append(TensorData(shape, dtype, view[position : position + size]))
        position += size
    return tensors


def tensor_bytes(shape: Sequence[int], dtype: str) -> int:
    """Size in bytes of a tensor.

    Raises:
        AgentError: the dtype cannot travel.
    """
    if dtype not in ITEM_BYTES:
        raise AgentError(
            "bad_request",
            "dtype %s cannot be sent; use one of %s" % (printable(dtype), ", ".join(ITEM_BYTES)),
        )
    size = ITEM_BYTES[dtype]
    for dimension in shape:
        size *= dimension
    return size
