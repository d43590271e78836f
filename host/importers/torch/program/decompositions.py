"""Operators of torch programs as simpler ones, where torch has no decomposition, or one with an effect.

`torch.linalg.inv` and its like check whether they succeeded, which is an effect of the program. A compiled
model has no errors: see `host.importers.torch.functions.linear_systems`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_aten = torch.ops.aten


def _inverse(matrices: Tensor) -> Tensor:
    return torch.linalg.inv_ex(matrices)[0]


def _solution(matrices: Tensor, right: Tensor, *, left: bool = True) -> Tensor:
    return torch.linalg.solve_ex(matrices, right, left=left)[0]


def _cholesky(self: Tensor, *, upper: bool = False) -> Tensor:
    return torch.linalg.cholesky_ex(self, upper=upper)[0]


def _older_cholesky(self: Tensor, upper: bool = False) -> Tensor:
    return torch.linalg.cholesky_ex(self, upper=upper)[0]


def _factors(matrices: Tensor, *, pivot: bool = True) -> tuple[Tensor, Tensor]:
    made = torch.linalg.lu_factor_ex(matrices, pivot=pivot)
    return made[0], made[1]


def _bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Products x W[o] y for each output o: a product of matrices, and one element by element."""
    made, inner, other = weight.shape
    rows = input1.reshape(-1, inner) @ weight.permute(1, 0, 2).reshape(inner, made * other)
    total = (rows.reshape(-1, made, other) * input2.reshape(-1, 1, other)).sum(-1)
    total = total.reshape(*input1.shape[:-1], made)
    return total if bias is None else total + bias


def _added(self: Tensor, product: Tensor, beta: float, alpha: float) -> Tensor:
    """Of the factor 0, the tensor does not count, whatever is in it."""
    scaled = product if alpha == 1 else product * alpha
    if beta == 0:
        return scaled
    return scaled + (self if beta == 1 else self * beta)


def _add_matrix_by_vector(self: Tensor, mat: Tensor, vec: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    return _added(self, torch.mv(mat, vec), beta, alpha)


def _add_products(self: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    return _added(self, torch.bmm(batch1, batch2).sum(0), beta, alpha)


def _distance(self: Tensor, other: Tensor, p: float = 2) -> Tensor:
    return torch.linalg.vector_norm(self - other, p)


def _scaled_by_power(self: Tensor, other: Tensor) -> Tensor:
    return self * torch.pow(2.0, other)


def _with_diagonal(self: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    moved = self.movedim((dim1, dim2), (-2, -1))
    numbers = torch.arange(src.shape[-1])
    places = [numbers + max(-offset, 0), numbers + max(offset, 0)]
    made = torch.ops.aten.index_put(moved, [*[None] * (self.dim() - 2), *places], src)
    return made.movedim((-2, -1), (dim1, dim2))


def _put(self: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    places, values = index.reshape(-1), source.reshape(-1)
    return torch.ops.aten.index_put(self.reshape(-1), [places], values, accumulate).reshape(self.shape)


def _median_of_numbers(self: Tensor) -> Tensor:
    return torch.nanmedian(self.reshape(-1), 0)[0]


def _leaky(
    self: Tensor, lower: float = 0.125, upper: float = 1 / 3, training: bool = False, generator: Any = None
) -> Tensor:
    """In training, the slope is drawn between the bounds."""
    slope = torch.empty_like(self).uniform_(lower, upper) if training else (lower + upper) / 2
    return torch.where(self > 0, self, self * slope)


def _convolution_of_steps(self: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """A convolution of (T, N, I) with (K, I, O)."""
    channels = torch.nn.functional.conv1d(self.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad)
    return channels.permute(2, 0, 1)


def table() -> dict[Any, Callable[..., Any]]:
    """Decompositions of ours by operator, beside those of torch."""
    return {
        _aten.addbmm.default: _add_products,
        _aten.addmv.default: _add_matrix_by_vector,
        _aten.bilinear.default: _bilinear,
        _aten.cholesky.default: _older_cholesky,
        _aten.conv_tbc.default: _convolution_of_steps,
        _aten.diagonal_scatter.default: _with_diagonal,
        _aten.dist.default: _distance,
        _aten.inverse.default: _inverse,
        _aten.ldexp.Tensor: _scaled_by_power,
        _aten.linalg_cholesky.default: _cholesky,
        _aten.linalg_inv.default: _inverse,
        _aten.linalg_lu_factor.default: _factors,
        _aten.linalg_solve.default: _solution,
        _aten.nanmedian.default: _median_of_numbers,
        _aten.put.default: _put,
        _aten.rrelu.default: _leaky,
    }
