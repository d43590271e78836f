"""Inverses of triangular matrices."""

from __future__ import annotations

import numpy as np

# Size of a triangular matrix that is inverted as a whole.
_SMALL = 128


def inverted(lower: np.ndarray) -> np.ndarray:
    """The inverse of a lower triangular matrix, by halves: a sixth of the operations of a general one's."""
    size = len(lower)
    if size <= _SMALL:
        found: np.ndarray = np.linalg.inv(lower)
        return found
    half = size // 2
    first, last = inverted(lower[:half, :half]), inverted(lower[half:, half:])
    result = np.zeros_like(lower)
    result[:half, :half], result[half:, half:] = first, last
    result[half:, :half] = -last @ lower[half:, :half] @ first
    return result
