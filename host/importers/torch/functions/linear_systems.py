"""Linear systems, inverses, determinants and Cholesky factors of small matrices in torch programs.

Torch raises an error for a matrix without an inverse, or one that is not positive definite. A compiled model
gives infinities or NaN for it. Factors that torch returns beside a solution, and numbers that say what
failed, are not computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import fx
from tvm import relax

from host.importers.shared.determinant import determinants
from host.importers.shared.linear_systems import cholesky, pivots, solution
from host.importers.torch.placed import sizes_of


def _reads_only(node: fx.Node, *numbers: int) -> bool:
    """Whether nothing but these results of a node is read."""
    read = {user.args[1] for user in node.users if user.users}
    return read <= set(numbers)


def _transposed(builder: relax.BlockBuilder, matrices: Any) -> Any:
    rank = matrices.ty.ndim
    return builder.emit(relax.op.permute_dims(matrices, [*range(rank - 2), rank - 1, rank - 2]))


def _unit_matrices(sizes: list[int], dtype: str) -> Any:
    return relax.const(np.broadcast_to(np.eye(sizes[-1], dtype=dtype), sizes).copy(), dtype)


def _inverse(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    data, sizes = given["A"], sizes_of(given["A"])
    if sizes is None or not _reads_only(node, 0):
        return None
    return solution(builder, data, _unit_matrices(sizes, str(data.ty.dtype))), None


def _solution(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """X of A X = B, or of X A = B; B may be a vector for each matrix."""
    emit, matrices, right = builder.emit, given["A"], given["B"]
    sizes, shape = sizes_of(matrices), sizes_of(right)
    made = list(node.meta["val"][0].shape)
    if sizes is None or shape is None or not _reads_only(node, 0):
        return None
    vectors = len(shape) == 1 or (len(shape) == len(sizes) - 1 and shape == sizes[:-1])
    if vectors:
        right, shape, made = emit(relax.op.expand_dims(right, -1)), [*shape, 1], [*made, 1]
    matrices = emit(relax.op.broadcast_to(matrices, [*made[:-2], *sizes[-2:]]))
    right = emit(relax.op.broadcast_to(right, [*made[:-2], *shape[-2:]]))
    if given["left"]:
        found = solution(builder, matrices, right)
    else:
        turned = (_transposed(builder, one) for one in (matrices, right))
        found = _transposed(builder, solution(builder, *turned))
    found = emit(relax.op.squeeze(found, [-1])) if vectors else found
    return found, None, None, None


def _triangular(
    builder: relax.BlockBuilder,
    matrices: Any,
    right: Any,
    upper: bool,
    left: bool,
    unit: bool,
    shape: list[int],
) -> Any:
    """X (shape) of A X = B, or of X A = B, where A is triangular."""
    sizes, own = sizes_of(matrices), sizes_of(right)
    if sizes is None or own is None:
        return None
    matrices = builder.emit(relax.op.broadcast_to(matrices, [*shape[:-2], *sizes[-2:]]))
    right = builder.emit(relax.op.broadcast_to(right, [*shape[:-2], *own[-2:]]))
    if left:
        return solution(builder, matrices, right, "upper" if upper else "lower", unit)
    matrices, right = (_transposed(builder, one) for one in (matrices, right))
    return _transposed(builder, solution(builder, matrices, right, "lower" if upper else "upper", unit))


def _triangular_solution(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    upper, left, unit = (given[name] for name in ("upper", "left", "unitriangular"))
    shape = list(node.meta["val"].shape)
    return _triangular(builder, given["self"], given["B"], upper, left, unit, shape)


def _older_triangular_solution(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """`torch.triangular_solve`, which returns the matrices, too."""
    matrices, upper = given["A"], given["upper"]
    if given["transpose"]:
        matrices, upper = _transposed(builder, matrices), not upper
    shape = list(node.meta["val"][0].shape)
    made = _triangular(builder, matrices, given["self"], upper, True, given["unitriangular"], shape)
    return None if made is None else (made, given["A"])


def _cholesky(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """Lower triangular factors, or the upper ones of the upper triangles."""
    data, sizes = given["self"], sizes_of(given["self"])
    if sizes is None or not _reads_only(node, 0):
        return None
    if given["upper"]:
        return _transposed(builder, cholesky(builder, _transposed(builder, data))), None
    return cholesky(builder, data), None


def _solution_of_factors(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """X of A X = B, where A is given by its Cholesky factor."""
    factors, shape = given["input2"], list(node.meta["val"].shape)
    turned = _transposed(builder, factors)
    lower, upper = (turned, factors) if given["upper"] else (factors, turned)
    made = _triangular(builder, lower, given["self"], False, True, False, shape)
    return None if made is None else _triangular(builder, upper, made, True, True, False, shape)


def _inverse_of_factors(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    sizes = sizes_of(given["self"])
    if sizes is None:
        return None
    right = _unit_matrices(sizes, str(given["self"].ty.dtype))
    return _solution_of_factors(
        builder, node, {"self": right, "input2": given["self"], "upper": given["upper"]}
    )


def _determinants(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    if sizes_of(given["A"]) is None or not _reads_only(node, 0):
        return None
    return determinants(builder, given["A"]), None, None


def _logarithms_of_determinants(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """The signs of determinants, and the logarithms of their sizes."""
    if sizes_of(given["A"]) is None or not _reads_only(node, 0, 1):
        return None
    emit, op, found = builder.emit, relax.op, pivots(builder, given["A"])
    sign = emit(op.prod(emit(op.sign(found)), -1))
    return sign, emit(op.sum(emit(op.log(emit(op.abs(found)))), -1)), None, None


CONVERTERS: Mapping[str, Any] = {
    "_linalg_det.default": _determinants,
    "_linalg_slogdet.default": _logarithms_of_determinants,
    "_linalg_solve_ex.default": _solution,
    "cholesky_inverse.default": _inverse_of_factors,
    "cholesky_solve.default": _solution_of_factors,
    "linalg_cholesky_ex.default": _cholesky,
    "linalg_inv_ex.default": _inverse,
    "linalg_solve_triangular.default": _triangular_solution,
    "triangular_solve.default": _older_triangular_solution,
}
