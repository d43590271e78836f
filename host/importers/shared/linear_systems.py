"""Linear systems, determinants and Cholesky factors of matrices, as operations of the compiler.

Matrices are (..., N, N), right sides and solutions (..., N, K), with equal sizes in front.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tvm import relax

from host.errors import ImportFailed
from host.importers.own_operator import emit_own

# Rows of a matrix, at most: beyond it, a factorisation in blocks would be wanted.
MAX_ROWS = 256


def solution(
    builder: relax.BlockBuilder, matrices: Any, right: Any, triangle: str = "", unit: bool = False
) -> Any:
    """X of A X = right.

    Args:
        builder: of the function.
        matrices: A.
        right: the right sides.
        triangle: "lower" or "upper" if only that part of A counts.
        unit: whether the diagonal of the triangle counts as ones.

    Raises:
        ImportFailed: A is too large, or not of floats.
    """
    sizes, count = _checked(builder, matrices)
    given = [int(size) for size in builder.normalize(right).ty.shape]
    flat = [_in_batches(builder, one, count, own[-2:]) for one, own in ((matrices, sizes), (right, given))]
    options = {"triangle": triangle, "unit": unit}
    made = _emit(builder, "linear_solution", flat, options, (count, *given[-2:]))
    return builder.emit(relax.op.reshape(made, given))


def pivots(builder: relax.BlockBuilder, matrices: Any) -> Any:
    """Numbers (..., N) whose product is the determinant.

    Raises:
        ImportFailed: the matrices are too large, or not of floats.
    """
    sizes, count = _checked(builder, matrices)
    flat = _in_batches(builder, matrices, count, sizes[-2:])
    made = _emit(builder, "matrix_pivots", [flat], {}, (count, sizes[-1]))
    return builder.emit(relax.op.reshape(made, sizes[:-1]))


def cholesky(builder: relax.BlockBuilder, matrices: Any) -> Any:
    """The lower triangular factors of symmetric matrices, of which the lower triangle is read.

    Raises:
        ImportFailed: the matrices are too large, or not of floats.
    """
    sizes, count = _checked(builder, matrices)
    flat = _in_batches(builder, matrices, count, sizes[-2:])
    made = _emit(builder, "cholesky", [flat], {}, (count, *sizes[-2:]))
    return builder.emit(relax.op.reshape(made, sizes))


def _checked(builder: relax.BlockBuilder, matrices: Any) -> tuple[list[int], int]:
    """The sizes of the matrices, and how many there are."""
    kind = builder.normalize(matrices).ty
    sizes = [int(size) for size in kind.shape]
    if str(kind.dtype) not in ("float32", "float64"):
        raise ImportFailed(f"matrices of {kind.dtype} cannot be factorised: convert them to float32")
    if not 0 < sizes[-1] <= MAX_ROWS or not prod(sizes):
        shown = " x ".join(map(str, sizes[-2:]))
        raise ImportFailed(f"a matrix of {shown} cannot be factorised: it may have 1 to {MAX_ROWS} rows")
    return sizes, prod(sizes[:-2])


def _in_batches(builder: relax.BlockBuilder, tensor: Any, count: int, matrix: list[int]) -> Any:
    return builder.emit(relax.op.reshape(tensor, (count, *matrix)))


def _emit(
    builder: relax.BlockBuilder,
    operation: str,
    tensors: list[Any],
    options: dict[str, Any],
    shape: tuple[int, ...],
) -> Any:
    dtype = str(builder.normalize(tensors[0]).ty.dtype)
    return emit_own(builder, operation, tensors, options, [(shape, dtype)])[0]
