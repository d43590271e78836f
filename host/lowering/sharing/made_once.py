"""Arrays that are made of the weights of a model, once for all of its functions, each of which reads them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence

import numpy as np


class MadeOnce:
    """What was made of which arrays."""

    def __init__(self) -> None:
        self._made: dict[Hashable, tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]] = {}

    def of(
        self, given: Sequence[np.ndarray], way: Hashable, make: Callable[[], Iterable[np.ndarray]]
    ) -> tuple[np.ndarray, ...]:
        """What `make` gives for arrays, or gave before for those in the same memory, in the same way.

        Args:
            given: what it reads. They are kept: nothing else comes to lie in their memory.
            way: all else that decides what `make` gives.
            make: called for arrays that are new, or for another way.
        """
        key = (way, *((one.ctypes.data, one.shape, one.strides, one.dtype.str) for one in given))
        if key not in self._made:
            self._made[key] = tuple(given), tuple(make())
        return self._made[key][1]
