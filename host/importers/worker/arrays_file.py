"""Arrays between a worker and its parent: their bytes in one file, what they are beside it as plain data."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from device_agent.contract.tensors import numpy_type
from host.errors import ModelFileError
from host.files import open_plain, writing

# Arrays start at a multiple of this.
_ALIGNMENT = 64
_PART_BYTES = 1 << 24


def write_arrays(path: Path, arrays: Iterable[np.ndarray]) -> list[dict[str, Any]]:
    """Write arrays and return the descriptions that `read_arrays` needs, in order.

    A file that is there is not written over: its pages may be mapped, as of the weights at another length.
    """
    path.unlink(missing_ok=True)
    index = []
    with path.open("wb") as stream:
        for array in arrays:
            stream.write(b"\0" * (-stream.tell() % _ALIGNMENT))
            index.append({"dtype": array.dtype.name, "shape": list(array.shape), "offset": stream.tell()})
            stream.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return index


def read_arrays(path: Path, index: object) -> list[np.ndarray]:
    """Map the arrays of a file that no other process writes to; their index is checked against its size.

    A file that is cut off ends the process that has mapped it: see `take_arrays`.

    Raises:
        ModelFileError: the file does not hold what was said.
    """
    with _opened(path) as stream:
        return _mapped(stream, index)


def take_arrays(path: Path, index: object) -> list[np.ndarray]:
    """Map the arrays of a file that a worker wrote, and may write to again: they are those of a copy.

    The copy has no name, and is gone with the last of the arrays.

    Raises:
        ModelFileError: the file does not hold what was said.
        DeviceFull: no space left for the copy.
    """
    with _opened(path) as made, writing(Path(tempfile.gettempdir())), tempfile.TemporaryFile() as own:
        left = os.fstat(made.fileno()).st_size
        # The worker may add to it meanwhile.
        while left and (part := made.read(min(left, _PART_BYTES))):
            own.write(part)
            left -= len(part)
        own.flush()
        return _mapped(own, index)


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    try:
        stream = open_plain(path)
    except OSError as error:
        raise ModelFileError("the answer of the import is damaged (no file of arrays)") from error
    with stream:
        yield stream


def _mapped(stream: IO[bytes], index: object) -> list[np.ndarray]:
    if not isinstance(index, list):
        raise ModelFileError("the answer of the import is damaged (no list of arrays)")
    content = np.zeros(0, np.uint8)
    if os.fstat(stream.fileno()).st_size:
        # One map for all arrays, since each holds a descriptor. Of private pages: another library may only
        # take memory over that it could write to.
        content = np.asarray(np.memmap(stream, np.uint8, mode="c"))
    return [_array(content, entry) for entry in index]


def _array(content: np.ndarray, entry: object) -> np.ndarray:
    try:
        assert isinstance(entry, dict)
        name, shape, offset = str(entry["dtype"]), tuple(entry["shape"]), entry["offset"]
        dtype = numpy_type(name)
        whole = all(type(number) is int and number >= 0 for number in (*shape, offset))
        held = math.prod(shape) * dtype.itemsize
        if not whole or dtype.hasobject or dtype.itemsize < 1 or len(shape) > 32:
            raise ValueError
        if held == 0:
            return np.zeros(shape, dtype)
        if offset % _ALIGNMENT or offset + held > content.size:
            raise ValueError
        made: np.ndarray = content[offset : offset + held].view(dtype).reshape(shape)
        return made
    except (AssertionError, KeyError, TypeError, ValueError) as error:
        raise ModelFileError("the answer of the import is damaged (an array)") from error
