"""An ONNX file without the bytes of its large weights, which stay pages of the file.

protobuf copies a file twice before anybody can read a weight of it: into a text and into messages. So the
fields of the file are walked here first, and `raw_data` of each large initialiser is left out of what
protobuf gets (https://protobuf.dev/programming-guides/encoding).
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

# Numbers of fields in onnx.proto.
_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9
# Kinds of fields on the wire.
_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5
_FIXED = {_FIXED64: 8, _FIXED32: 4}
_VARINT_BYTES = 10
# Smaller weights go through protobuf like everything else.
LARGE_BYTES = 1 << 20


class Span(NamedTuple):
    """Bytes of the file, from `begin` up to `end`."""

    begin: int
    end: int


@dataclass
class SplitFile:
    """A file taken apart.

    Attributes:
        skeleton: the model without the bytes of large weights.
        content: the file, mapped.
        raw: where these bytes lie, by the place of the initialiser in the graph.
    """

    content: mmap.mmap
    skeleton: bytes = b""
    raw: dict[int, Span] = field(default_factory=dict)


class _MalformedError(ValueError):
    pass


class _WireField(NamedTuple):
    """A field of a message: all of it, and what it holds where that has a length."""

    number: int
    whole: Span
    body: Span | None


def split_file(path: Path) -> SplitFile:
    """Take a file apart. One that is no protobuf message is left whole for protobuf to refuse."""
    with path.open("rb") as stream:
        content = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    split = SplitFile(content)
    try:
        split.skeleton = _model(split)
    except _MalformedError:
        split.skeleton, split.raw = bytes(content), {}
    return split


def _model(split: SplitFile) -> bytes:
    content = split.content
    parts: list[bytes] = []
    count = 0
    for entry in _fields(content, Span(0, len(content))):
        if entry.number != _GRAPH or entry.body is None:
            parts.append(content[slice(*entry.whole)])
            continue
        graph: list[bytes] = []
        for inner in _fields(content, entry.body):
            if inner.number != _INITIALIZER or inner.body is None:
                graph.append(content[slice(*inner.whole)])
                continue
            graph.append(_tensor(split, inner, count))
            count += 1
        parts.append(_delimited(_GRAPH, b"".join(graph)))
    return b"".join(parts)


def _tensor(split: SplitFile, initializer: _WireField, place: int) -> bytes:
    """An initialiser, without its bytes where they are many."""
    content, body = split.content, initializer.body
    assert body is not None
    if body.end - body.begin < LARGE_BYTES:
        return content[slice(*initializer.whole)]
    fields = list(_fields(content, body))
    raw = [entry.body for entry in fields if entry.number == _RAW_DATA]
    found = raw[0] if len(raw) == 1 else None
    if found is None or found.end - found.begin < LARGE_BYTES:
        return content[slice(*initializer.whole)]
    split.raw[place] = found
    kept = (content[slice(*entry.whole)] for entry in fields if entry.number != _RAW_DATA)
    return _delimited(_INITIALIZER, b"".join(kept))


def _fields(content: mmap.mmap, span: Span) -> Iterator[_WireField]:
    position = span.begin
    while position < span.end:
        begin = position
        key, position = _varint(content, position, span.end)
        number, kind = key >> 3, key & 7
        body = None
        if kind == _VARINT:
            _, position = _varint(content, position, span.end)
        elif kind == _DELIMITED:
            size, position = _varint(content, position, span.end)
            body = Span(position, position + size)
            position += size
        elif kind in _FIXED:
            position += _FIXED[kind]
        else:
            raise _MalformedError
        if position > span.end or number == 0:
            raise _MalformedError
        yield _WireField(number, Span(begin, position), body)


def _varint(content: mmap.mmap, position: int, end: int) -> tuple[int, int]:
    """A whole number of seven bits a byte, the least first, and the position behind it."""
    value = 0
    for index in range(_VARINT_BYTES):
        if position + index >= end:
            break
        byte = content[position + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, position + index + 1
    raise _MalformedError


def _delimited(number: int, body: bytes) -> bytes:
    return _encoded(number << 3 | _DELIMITED) + _encoded(len(body)) + body


def _encoded(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
