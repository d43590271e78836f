"""Arrays between a worker and its parent: their bytes in one file, what they are beside it as plain data."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from device_agent.contract.tensors import numpy_type
from host.errors import ModelFileError

# Arrays start at a multiple of this.
_ALIGNMENT = 64


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
    """Map the arrays of a file; their index is checked against the file's size.

    Raises:
        ModelFileError: the file does not hold what was said.
    """
    if not isinstance(index, list) or path.is_symlink():
        raise ModelFileError("the answer of the import is damaged (no list of arrays)")
    return [_read(path, entry, path.stat().st_size) for entry in index]


def _read(path: Path, entry: object, size: int) -> np.ndarray:
    try:
        assert isinstance(entry, dict)
        name, shape, offset = str(entry["dtype"]), tuple(entry["shape"]), entry["offset"]
        dtype = numpy_type(name)
        whole = all(type(number) is int and number >= 0 for number in (*shape, offset))
        held = math.prod(shape) * dtype.itemsize
        if not whole or dtype.hasobject or dtype.itemsize < 1 or len(shape) > 32 or offset + held > size:
            raise ValueError
        if held == 0:
            return np.zeros(shape, dtype)
        # Private pages: another library may only take memory over that it could write to.
        return np.memmap(path, dtype=dtype, mode="c", offset=offset, shape=shape)
    except (AssertionError, KeyError, TypeError, ValueError) as error:
        raise ModelFileError("the answer of the import is damaged (an array)") from error
