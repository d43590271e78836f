"""What counts as a parameter of a model."""

from __future__ import annotations

from collections.abc import Sequence

_NARROW = frozenset({"int8", "uint8", "int4", "uint4"})


def is_parameter(shape: Sequence[int], dtype: str) -> bool:
    """Whether the elements of a file's constant are parameters.

    Single numbers are not (scales of a tensor, limits of a clip), and neither are whole numbers of more than
    8 bits: shapes, axes, indices, and biases of quantised layers.

    Args:
        shape: of the constant.
        dtype: NumPy's or ml_dtypes' name of its type.
    """
    return len(shape) > 0 and ("float" in dtype or dtype in _NARROW)
