"""Arrays of equal content as one, found without reading those that differ."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import numpy as np

# Elements by which arrays are told apart before all of them are compared, and bytes compared at a time.
_SAMPLES, _COMPARED_BYTES = 16, 1 << 22
# Elements are compared as whole numbers, so that NaN is equal to itself and -0.0 differs from 0.0.
_AS_NUMBERS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class EqualArrays:
    """A list of arrays in which none has the shape, the type and the bytes of another one.

    Attributes:
        arrays: in the order in which they were placed.
    """

    def __init__(self) -> None:
        self.arrays: list[np.ndarray] = []
        self._alike: dict[Hashable, list[int]] = {}

    def place(self, array: np.ndarray, may_be: Callable[[int], bool] = lambda index: True) -> int:
        """The index of an array in the list; it is added where no other one is equal.

        Args:
            array: of any layout in memory; it is not copied.
            may_be: whether the array may share an index. Arrays that may not are equal and apart.
        """
        alike = self._alike.setdefault(_features(array), [])
        for index in alike:
            if may_be(index) and _equal(self.arrays[index], array):
                return index
        alike.append(len(self.arrays))
        self.arrays.append(array)
        return alike[-1]


def _features(array: np.ndarray) -> Hashable:
    """What equal arrays have in common: shape, type, and some elements from all over the array."""
    places = np.linspace(0, max(array.size - 1, 0), min(array.size, _SAMPLES)).astype(np.int64)
    some = array[np.unravel_index(places, array.shape)] if array.size > 1 else array
    return array.shape, str(array.dtype), some.tobytes()


def _equal(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two arrays of one shape and type have the same bytes."""
    if one is other or (one.ctypes.data == other.ctypes.data and one.strides == other.strides):
        return True
    if one.itemsize not in _AS_NUMBERS:
        return one.tobytes() == other.tobytes()
    one, other = (array.view(_AS_NUMBERS[array.itemsize]) for array in (one, other))
    if not one.ndim:
        return bool(one == other)
    rows = max(1, _COMPARED_BYTES // max(1, one.nbytes // max(1, len(one))))
    pieces = (slice(start, start + rows) for start in range(0, len(one), rows))
    return all(np.array_equal(one[piece], other[piece]) for piece in pieces)
