"""Discrete Fourier transforms of known length along the last axis, as products with constant matrices.

y[k] = sum over n of x[n] exp(-2 pi i k n / N), and with the other sign of the exponent for the inverse one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from host.errors import ImportFailed

# A matrix of this many rows, and half as many columns, is 8 MB in float32; a fast transform would be wanted
# beyond it.
MAX_LENGTH = 2048


def transform(
    builder: relax.BlockBuilder,
    real: Any,
    imaginary: Any | None,
    rows: int,
    inverse: bool = False,
    factor: float = 1.0,
) -> tuple[Any, Any]:
    """The first results of a transform.

    Args:
        builder: of the function.
        real: parts of N numbers (..., N).
        imaginary: parts of the same; None for zeros.
        rows: how many of the N results are wanted, from the first one on.
        inverse: whether the exponent is positive.
        factor: of the results.

    Returns:
        Real and imaginary parts (..., rows).

    Raises:
        ImportFailed: there are more than `MAX_LENGTH` numbers.
    """
    length = int(builder.normalize(real).ty.shape[-1])
    _check(length)
    angles = 2 * np.pi * _products(length, rows) / length
    sign = factor if inverse else -factor
    tables = factor * np.cos(angles), sign * np.sin(angles)
    cosine, sine = (_constant(builder, real, table) for table in tables)
    first, second = (builder.emit(relax.op.matmul(real, matrix)) for matrix in (cosine, sine))
    if imaginary is None:
        return first, second
    first = builder.emit(relax.op.subtract(first, builder.emit(relax.op.matmul(imaginary, sine))))
    return first, builder.emit(relax.op.add(second, builder.emit(relax.op.matmul(imaginary, cosine))))


def from_half(
    builder: relax.BlockBuilder, real: Any, imaginary: Any | None, length: int, factor: float
) -> Any:
    """Real numbers (..., N) of the half of their spectrum (..., N / 2 + 1), the rest being its conjugate.

    x[n] = sum over k of w[k] (Re X[k] cos(2 pi k n / N) - Im X[k] sin(2 pi k n / N)), where w is 1 for the
    frequencies that are their own conjugates (0, and N / 2 of even lengths), and 2 for others.

    Args:
        builder: of the function.
        real: parts of the spectrum.
        imaginary: parts of the same; None for zeros.
        length: N.
        factor: of the results, 1 / N for those of the inverse transform.

    Raises:
        ImportFailed: N is no length of a transform.
    """
    _check(length)
    rows = length // 2 + 1
    weights = factor * np.array([1.0 if 2 * k in (0, length) else 2.0 for k in range(rows)])[:, None]
    angles = 2 * np.pi * _products(length, length)[:rows] / length
    cosine, sine = (_constant(builder, real, weights * table) for table in (np.cos(angles), np.sin(angles)))
    made = builder.emit(relax.op.matmul(real, cosine))
    if imaginary is None:
        return made
    return builder.emit(relax.op.subtract(made, builder.emit(relax.op.matmul(imaginary, sine))))


def _check(length: int) -> None:
    if not 0 < length <= MAX_LENGTH:
        raise ImportFailed(f"a Fourier transform of {length} values is not one of 1 to {MAX_LENGTH}")


def _products(length: int, columns: int) -> np.ndarray:
    """Numbers of the angles, which repeat: smaller ones have the more exact sines."""
    return np.outer(np.arange(length), np.arange(columns)) % length


def _constant(builder: relax.BlockBuilder, like: Any, table: np.ndarray) -> Any:
    dtype = str(builder.normalize(like).ty.dtype)
    return relax.const(table.astype(dtype), dtype)
