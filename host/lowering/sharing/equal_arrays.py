"""Arrays of equal content as one, found without reading most of those that differ."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable

import numpy as np

# Elements by which arrays are told apart before all of them are read.
_SAMPLES = 16


class EqualArrays:
    """A list of arrays in which none has the shape, the type and the bytes of another one.

    Attributes:
        arrays: in the order in which they were placed.
    """

    def __init__(self) -> None:
        self.arrays: list[np.ndarray] = []
        self._alike: dict[Hashable, list[int]] = {}
        self._digests: dict[int, bytes] = {}

    def place(self, array: np.ndarray, may_be: Callable[[int], bool] = lambda index: True) -> int:
        """The index of an array in the list; it is added where no other one is equal.

        Args:
            array: of any layout in memory.
            may_be: whether the array may share an index. Arrays that may not are equal and apart.
        """
        alike = self._alike.setdefault(_features(array), [])
        found = self._equal(array, [index for index in alike if may_be(index)])
        if found is None:
            found = len(self.arrays)
            alike.append(found)
            self.arrays.append(array)
        return found

    def _equal(self, array: np.ndarray, candidates: list[int]) -> int | None:
        for index in candidates:
            if _same_memory(self.arrays[index], array):
                return index
        # Each array is read once, however many others have its features.
        digest = _digest(array) if candidates else b""
        for index in candidates:
            if index not in self._digests:
                self._digests[index] = _digest(self.arrays[index])
            if self._digests[index] == digest:
                return index
        return None


def _features(array: np.ndarray) -> Hashable:
    """What equal arrays have in common: shape, type, and some elements from all over the array."""
    places = np.linspace(0, max(array.size - 1, 0), min(array.size, _SAMPLES)).astype(np.int64)
    some = array[np.unravel_index(places, array.shape)] if array.size > 1 else array
    return array.shape, str(array.dtype), some.tobytes()


def _same_memory(one: np.ndarray, other: np.ndarray) -> bool:
    return one is other or (one.ctypes.data == other.ctypes.data and one.strides == other.strides)


def _digest(array: np.ndarray) -> bytes:
    """Of the bytes, so that NaN is equal to itself and -0.0 differs from 0.0."""
    return hashlib.sha256(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data).digest()
