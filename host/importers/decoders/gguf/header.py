"""The header of a GGUF file: metadata, and where each tensor lies.

Format (versions 2 and 3, little-endian): "GGUF", the version as 32 bits, the numbers of tensors and of
metadata as 64 bits; each metadata is a name, a type and a value; each tensor is a name, its sizes with the
innermost first, a type, and an offset from the data, which begin at the next multiple of `general.alignment`.
Text is a length of 64 bits and UTF-8; an array is a type, a length of 64 bits and the values.

The file may be anyone's. The header is read through a bound on its bytes, and each value of it takes at least
one, so that counts in it make no work of their own.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from device_agent.contract.limits import LIMITS
from device_agent.contract.text import printable
from host.errors import ModelFileError
from host.language_file import GGUF_MAGIC

_VERSIONS = (2, 3)
# Vocabulary and merges of the largest tokenizers take 16 MiB.
_HEADER_BYTES = 1 << 26
_VALUES, _TENSORS, _ITEMS, _RANK = 1 << 12, 1 << 16, 1 << 22, 4
_NAME_BYTES = 1 << 10
_ALIGNMENT, _LARGEST_ALIGNMENT = 32, 1 << 16

_TEXT, _ARRAY, _TRUTH = 8, 9, 7
_NUMBERS = {
    0: "u1",
    1: "i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
_NUMBERS[_TRUTH] = "u1"

# Elements and bytes of a block of each type that is read, by its number in files.
BLOCKS = {
    "F32": (1, 4),
    "F16": (1, 2),
    "BF16": (1, 2),
    "Q4_0": (32, 18),
    "Q4_1": (32, 20),
    "Q5_0": (32, 22),
    "Q5_1": (32, 24),
    "Q8_0": (32, 34),
    "Q4_K": (256, 144),
    "Q5_K": (256, 176),
    "Q6_K": (256, 210),
}
_TYPES = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    6: "Q5_0",
    7: "Q5_1",
    8: "Q8_0",
    10: "Q2_K",
    11: "Q3_K",
    12: "Q4_K",
    13: "Q5_K",
    14: "Q6_K",
    16: "IQ2_XXS",
    17: "IQ2_XS",
    18: "IQ3_XXS",
    19: "IQ1_S",
    20: "IQ4_NL",
    21: "IQ3_S",
    22: "IQ2_S",
    23: "IQ4_XS",
    29: "IQ1_M",
    30: "BF16",
    34: "TQ1_0",
    35: "TQ2_0",
    39: "MXFP4",
}


@dataclass(frozen=True)
class TensorPlace:
    """The place of a tensor in the file.

    Attributes:
        dtype: name of its type; "type N" of an unknown one.
        shape: the innermost size last.
        begin, end: bytes of the file; equal where the type is not read.
    """

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True, eq=False)
class Header:
    """The metadata and the tensors' places, which the file has before its data.

    Attributes:
        values: metadata by name: a number, a truth, a text, or a list of those.
        tensors: by name.
    """

    values: Mapping[str, Any]
    tensors: Mapping[str, TensorPlace]


def read_header(path: Path) -> Header:
    """The header of a file.

    Raises:
        ModelFileError: it is damaged, truncated, or of another version.
        OSError: it cannot be read.
    """
    with path.open("rb") as stream:
        return _Reader(path, stream).header()


class _Reader:
    """Reads one header from its beginning to its end.

    Args:
        path: of the file, for messages and its size.
        stream: of the file, at its beginning.
    """

    def __init__(self, path: Path, stream: BinaryIO) -> None:
        self._path, self._stream = path, stream
        self._size = path.stat().st_size
        self._left = min(self._size, _HEADER_BYTES)

    def header(self) -> Header:
        """The header of the file: its fields and where each tensor lies."""
        if self._take(len(GGUF_MAGIC)) != GGUF_MAGIC:
            raise self._damaged("it does not begin with GGUF")
        version = self._number("<I")
        if version not in _VERSIONS:
            raise ModelFileError(
                f"{self._path.name}: GGUF version {version}; versions 2 and 3, little-endian, are read: "
                "convert the model again"
            )
        tensors = self._count(_TENSORS, "tensors")
        values = self._metadata(self._count(_VALUES, "metadata"))
        places = [self._place() for _ in range(tensors)]
        alignment = values.get("general.alignment", _ALIGNMENT)
        if (
            type(alignment) is not int
            or not 1 <= alignment <= _LARGEST_ALIGNMENT
            or alignment & (alignment - 1)
        ):
            raise self._damaged("general.alignment is no power of two")
        start = -(-self._stream.tell() // alignment) * alignment
        found: dict[str, TensorPlace] = {}
        for name, dtype, shape, offset in places:
            if name in found:
                raise self._damaged(f"tensor {printable(name, 100)!r} is there twice")
            found[name] = self._placed(name, dtype, shape, start + offset)
        return Header(values, found)

    def _metadata(self, count: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for _ in range(count):
            name = self._name()
            if name in values:
                raise self._damaged(f"metadata {printable(name, 100)!r} is there twice")
            values[name] = self._value(self._number("<I"))
        return values

    def _value(self, kind: int) -> Any:
        if kind == _TEXT:
            return self._text(self._left)
        if kind == _ARRAY:
            inner = self._number("<I")
            count = self._count(_ITEMS, "entries")
            if inner == _TEXT:
                return [self._text(self._left) for _ in range(count)]
            return self._numbers(inner, count)
        return self._numbers(kind, 1)[0]

    def _numbers(self, kind: int, count: int) -> list[Any]:
        if kind not in _NUMBERS:
            raise self._damaged(f"a value has type {kind}")
        dtype = np.dtype(_NUMBERS[kind])
        values = np.frombuffer(self._take(count * dtype.itemsize), dtype)
        return list((values != 0).tolist() if kind == _TRUTH else values.tolist())

    def _place(self) -> tuple[str, str, tuple[int, ...], int]:
        name, rank = self._name(), self._number("<I")
        if not 1 <= rank <= _RANK:
            raise self._damaged(f"tensor {printable(name, 100)!r} has {rank} dimensions")
        shape = tuple(self._number("<Q") for _ in range(rank))[::-1]
        if not all(1 <= size <= LIMITS.model.dimension for size in shape):
            raise self._damaged(f"tensor {printable(name, 100)!r} has a size out of range")
        kind = self._number("<I")
        return name, _TYPES.get(kind, f"type {kind}"), shape, self._number("<Q")

    def _placed(self, name: str, dtype: str, shape: tuple[int, ...], begin: int) -> TensorPlace:
        if dtype not in BLOCKS:
            return TensorPlace(dtype, shape, 0, 0)
        elements, size = BLOCKS[dtype]
        if shape[-1] % elements:
            raise self._damaged(f"tensor {printable(name, 100)!r} has rows of {shape[-1]}, no whole blocks")
        end = begin + math.prod(shape) // elements * size
        if end > self._size:
            raise self._damaged(f"tensor {printable(name, 100)!r} lies outside of the file")
        return TensorPlace(dtype, shape, begin, end)

    def _name(self) -> str:
        name = self._text(_NAME_BYTES)
        if not name:
            raise self._damaged("a name is empty")
        return name

    def _text(self, most: int) -> str:
        length = self._number("<Q")
        if length > most:
            raise self._damaged("a text is longer than any")
        # A token may be a part of a character; a name that is none fits nothing.
        return self._take(length).decode("utf-8", "replace")

    def _count(self, most: int, what: str) -> int:
        count = self._number("<Q")
        if count > most:
            raise self._damaged(f"it has {count} {what}")
        return count

    def _number(self, form: str) -> int:
        return int(struct.unpack(form, self._take(struct.calcsize(form)))[0])

    def _take(self, count: int) -> bytes:
        self._left -= count
        data = self._stream.read(count) if self._left >= 0 else b""
        if len(data) != count:
            raise self._damaged("its header is longer than the file, or than any")
        return data

    def _damaged(self, text: str) -> ModelFileError:
        return ModelFileError(f"{self._path.name}: not a whole GGUF file: {text}: download it again")
