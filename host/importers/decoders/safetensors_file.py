"""Weights of a safetensors file, one at a time: the header is checked, the bytes are mapped.

Format: 8 bytes with the length of the header, little-endian; the header, a JSON object of `dtype`, `shape`
and `data_offsets` by name; then the bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

import ml_dtypes
import numpy as np

from device_agent.contract.fields import Fields
from device_agent.contract.limits import LIMITS
from device_agent.contract.strict_json import parse
from device_agent.contract.text import printable
from host.errors import ModelFileError
from host.importers.decoders.quantise import Form, Quantised, quantise
from host.language_file import refuse_pointer

_TYPES = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}
_LENGTH_BYTES = 8
# As many as tell a pointer of Git LFS from a header.
_HEAD_BYTES = 64
# Elements that are converted at a time.
_BLOCK = 1 << 22


@dataclass(frozen=True)
class StoredTensor:
    """Where one tensor lies.

    Attributes:
        path: of the file.
        dtype: as the file names it.
        shape: of the tensor.
        begin, end: bytes of the file.
    """

    path: Path
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def form(self) -> Form | None:
        """The form of the values where the file has whole numbers with scales; None of floating point."""
        return None

    @property
    def order(self) -> np.ndarray | None:
        """The input (K) of each column of what `quantised` gives; None where they are in order."""
        return None

    @property
    def has_rows(self) -> bool:
        """Whether some rows can be read without all the others; `rows` reads all where they cannot."""
        return True

    def quantised(self, name: str, form: Form, importance: np.ndarray | None = None) -> Quantised:
        """The values (N, K) in the form of the file, or rounded to whole numbers with scales.

        Args:
            name: of the tensor, for messages.
            form: that values are rounded to; not looked at where the file has one.
            importance: (K) what errors of the inputs weigh where values are rounded; see `quantise`.

        Raises:
            ModelFileError: see `read`.
            ValueError: a value is too large for a scale of half precision.
            OSError: it cannot be read.
        """
        return quantise(self.read(name), form.bits, form.block, form.asymmetry, importance)

    def read(self, name: str) -> np.ndarray:
        """The values as float32.

        Args:
            name: of the tensor, for messages.

        Raises:
            ModelFileError: another type than floating point, or values that are not finite.
            OSError: it cannot be read.
        """
        if self.dtype not in _TYPES:
            raise ModelFileError(
                f"{self.path.name}: weight {printable(name, 100)!r} has type {printable(self.dtype, 20)}; "
                f"{', '.join(_TYPES)} are read: give the model "
                + ("in one of them" if self.dtype == "F64" else "as it was before it was quantised")
            )
        values = np.empty(math.prod(self.shape), np.float32)
        dtype = np.dtype(_TYPES[self.dtype])
        with self.path.open("rb") as stream:
            stream.seek(self.begin)
            for begin in range(0, len(values), _BLOCK):
                part = values[begin : begin + _BLOCK]
                data = stream.read(len(part) * dtype.itemsize)
                if len(data) != len(part) * dtype.itemsize:
                    raise ModelFileError(f"{self.path.name}: the file became shorter: download it again")
                part[:] = np.frombuffer(data, dtype)
        if not np.isfinite(values.min(initial=0)) or not np.isfinite(values.max(initial=0)):
            raise ModelFileError(
                f"{self.path.name}: weight {printable(name, 100)!r} holds NaN or infinity: "
                "the model cannot give useful outputs"
            )
        return values.reshape(self.shape)

    def rows(self, name: str, begin: int, end: int) -> np.ndarray:
        """Some rows of the values as float32.

        Args:
            name: of the tensor, for messages.
            begin: first row.
            end: row behind the last one.

        Raises:
            ModelFileError, OSError: see `read`.
        """
        size = (self.end - self.begin) // self.shape[0]
        shape = (end - begin, *self.shape[1:])
        first = self.begin + begin * size
        part = replace(self, shape=shape, begin=first, end=first + (end - begin) * size)
        return part.read(name)

    def equals(self, other: StoredTensor) -> bool:
        """Whether another tensor has the same type, shape and bytes.

        Raises:
            OSError: one cannot be read.
        """
        if (self.dtype, self.shape) != (other.dtype, other.shape):
            return False
        with self.path.open("rb") as first, other.path.open("rb") as second:
            first.seek(self.begin)
            second.seek(other.begin)
            sizes = [min(_BLOCK, self.end - begin) for begin in range(self.begin, self.end, _BLOCK)]
            return all(first.read(size) == second.read(size) for size in sizes)


def read_header(path: Path) -> dict[str, StoredTensor]:
    """The tensors of a file, by name.

    Raises:
        ModelFileError: it is damaged or truncated.
        OSError: it cannot be read.
    """

    def fail(text: str) -> ModelFileError:
        return ModelFileError(f"{path.name}: not a whole safetensors file: {text}: download it again")

    size = path.stat().st_size
    with path.open("rb") as stream:
        head = stream.read(_HEAD_BYTES)
        refuse_pointer(path, head)
        length = int.from_bytes(head[:_LENGTH_BYTES], "little")
        if not 2 <= length <= min(LIMITS.model.directory_bytes, size - _LENGTH_BYTES):
            raise fail("its header is longer than the file, or than any")
        stream.seek(_LENGTH_BYTES)
        data = stream.read(length)
    try:
        header = parse(data, LIMITS.model.directory_bytes, "the header")
    except ValueError as error:
        raise fail(str(error)) from error
    if not isinstance(header, dict):
        raise fail("the header is no object")
    fields = Fields(header, fail)
    return {
        name: _entry(path, name, fields.object(name), _LENGTH_BYTES + length, size)
        for name in header
        if name != "__metadata__"
    }


def _entry(path: Path, name: str, fields: Fields, start: int, size: int) -> StoredTensor:
    dtype = fields.name("dtype")
    shape = _sizes(fields, "shape", LIMITS.model.rank)
    offsets = _sizes(fields, "data_offsets", 2)
    if len(offsets) != 2 or not 0 <= offsets[0] <= offsets[1] <= size - start:
        raise fields.error("its bytes lie outside of the file")
    item = np.dtype(_TYPES[dtype]).itemsize if dtype in _TYPES else 0
    if item and math.prod(shape) * item != offsets[1] - offsets[0]:
        raise fields.error("its bytes are not those of its shape")
    return StoredTensor(path, dtype, shape, start + offsets[0], start + offsets[1])


def _sizes(fields: Fields, name: str, most: int) -> tuple[int, ...]:
    values = fields.items(name, most)
    if any(type(value) is not int or not 0 <= value <= LIMITS.model.dimension for value in values):
        raise fields.wrong(name, "a list of sizes")
    return tuple(values)
