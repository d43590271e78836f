"""Fourier transforms of torch programs; those over several axes are one after another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from torch import fx
from tvm import relax

from host.importers.shared.fourier import from_half, transform
from host.importers.torch.functions.complex_values import Complex
from host.importers.torch.placed import sizes_of


def _factor(normalization: int, count: int) -> float:
    """What results are multiplied by: torch's `fft_norm_mode` (none, 1 / sqrt(n), 1 / n) of n numbers."""
    return (1.0, count**-0.5, 1.0 / count)[normalization]


def _along(
    builder: relax.BlockBuilder, value: Complex, axes: Sequence[int], inverse: bool, factor: float
) -> Complex:
    """Whole transforms of complex numbers along some axes."""
    real, imaginary = value.real, value.imaginary
    for axis in axes:
        rows = (sizes_of(real) or [0])[axis]
        real, imaginary = _moved(builder, real, axis), _moved(builder, imaginary, axis)
        made = transform(builder, real, imaginary, rows, inverse, factor)
        real, imaginary = (_moved(builder, one, axis) for one in made)
        factor = 1.0
    return Complex(real, imaginary)


def _moved(builder: relax.BlockBuilder, data: Any, axis: int) -> Any:
    """The tensor with an axis and the last one exchanged."""
    order = list(range(data.ty.ndim))
    order[axis], order[-1] = order[-1], order[axis]
    return builder.emit(relax.op.permute_dims(data, order))


def _of_real(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """The transform of real numbers, of which `onesided` wants half along the last axis that is given."""
    data, sizes = given["self"], sizes_of(given["self"])
    if sizes is None:
        return None
    *others, last = (axis % len(sizes) for axis in given["dim"])
    factor = _factor(given["normalization"], prod(sizes[axis] for axis in (*others, last)))
    rows = sizes[last] // 2 + 1 if given["onesided"] else sizes[last]
    made = transform(builder, _moved(builder, data, last), None, rows, factor=factor)
    half = Complex(*(_moved(builder, one, last) for one in made))
    return _along(builder, half, others, False, 1.0)


def _of_complex(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    sizes = sizes_of(given["self"].real)
    if sizes is None:
        return None
    axes = [axis % len(sizes) for axis in given["dim"]]
    factor = _factor(given["normalization"], prod(sizes[axis] for axis in axes))
    return _along(builder, given["self"], axes, not given["forward"], factor)


def _to_real(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """Real numbers of the half of their spectrum along the last axis that is given."""
    value, sizes = given["self"], sizes_of(given["self"].real)
    if sizes is None:
        return None
    *others, last = (axis % len(sizes) for axis in given["dim"])
    length = given["last_dim_size"]
    factor = _factor(given["normalization"], length * prod(sizes[axis] for axis in others))
    value = _along(builder, value, others, True, 1.0)
    real, imaginary = _moved(builder, value.real, last), _moved(builder, value.imaginary, last)
    return _moved(builder, from_half(builder, real, imaginary, length, factor), last)


CONVERTERS: Mapping[str, Any] = {
    "_fft_c2c.default": _of_complex,
    "_fft_c2r.default": _to_real,
    "_fft_r2c.default": _of_real,
}
