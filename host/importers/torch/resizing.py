"""Images of another resolution in torch programs, as weighted neighbours along each axis.

Positions and weights are those of PyTorch 2.13, aten/src/ATen/native/UpSample.h and cpu/UpSampleKernel.cpp. A
scale that the program gives counts even where the size of the result is another one, as 1.7 times 9 is 15.
What relax's resize2d computes alike is left to it, because it compiles to the better program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import fx
from tvm import relax

from host.importers.torch.placed import sizes_of

_KINDS = {
    "upsample_nearest1d.vec": "nearest",
    "upsample_nearest2d.vec": "nearest",
    "upsample_nearest3d.vec": "nearest",
    "_upsample_nearest_exact1d.vec": "nearest-exact",
    "_upsample_nearest_exact2d.vec": "nearest-exact",
    "_upsample_nearest_exact3d.vec": "nearest-exact",
    "upsample_linear1d.vec": "linear",
    "upsample_bilinear2d.vec": "linear",
    "upsample_trilinear3d.vec": "linear",
    "upsample_bicubic2d.vec": "cubic",
    "_upsample_bilinear2d_aa.vec": "linear-antialias",
    "_upsample_bicubic2d_aa.vec": "cubic-antialias",
}
OPERATORS = tuple(_KINDS)
# Kinds that copy an axis that keeps its length, whatever scale the program gives.
_COPYING = ("nearest", "linear")
# The coefficient of the cubic kernel, without and with antialiasing.
_CUBIC, _CUBIC_ANTIALIAS = -0.75, -0.5


@dataclass(frozen=True)
class _Axis:
    """How one axis is resized.

    Attributes:
        size, made: its length before and after.
        scale: that the program gives, None for the ratio of the lengths.
        corners: whether the first and last positions before and after are the same.
    """

    size: int
    made: int
    scale: float | None
    corners: bool

    @property
    def step(self) -> np.float32:
        """Positions before, for each one after."""
        if self.corners:
            return np.float32((self.size - 1) / (self.made - 1) if self.made > 1 else 0.0)
        return np.float32(1.0 / self.scale if self.scale else self.size / self.made)

    @property
    def follows_lengths(self) -> bool:
        """Whether the step is that of the lengths alone."""
        return self.corners or not self.scale or self.size * self.scale == self.made


def convert(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """The image in its other resolution.

    Args:
        builder: of the function.
        node: a call of one of `OPERATORS`.
        given: its arguments by name.

    Returns:
        A relax expression; None where a size is no number, or numbers are no floats.
    """
    data, kind = given["input"], _KINDS[node.target.__name__]
    before, after = sizes_of(data), list(node.meta["val"].shape)
    if before is None or not all(isinstance(size, int) for size in after) or len(before) != len(after):
        return None
    if kind not in ("nearest", "nearest-exact") and not str(data.ty.dtype).startswith("float"):
        return None
    scales = given.get("scale_factors") or [None] * (len(after) - 2)
    corners = bool(given.get("align_corners"))
    lengths = zip(before[2:], after[2:], scales, strict=True)
    axes = [_Axis(size, made, scale, corners) for size, made, scale in lengths]
    simple = _resize2d(data, kind, axes)
    if simple is not None:
        return builder.emit(simple)
    for number, axis in enumerate(axes, 2):
        if axis.size != axis.made or (kind not in _COPYING and not axis.follows_lengths):
            data = weighted_neighbours(builder, data, number, *_taps(kind, axis))
    return data


def _resize2d(data: Any, kind: str, axes: Sequence[_Axis]) -> Any:
    """Relax's own operator, where it means the same; None elsewhere."""
    if len(axes) != 2 or str(data.ty.dtype) != "float32":
        return None
    sizes = tuple(axis.made for axis in axes)
    if kind == "linear" and all(axis.follows_lengths for axis in axes):
        coordinates = "align_corners" if axes[0].corners else "half_pixel"
        return relax.op.image.resize2d(data, sizes, None, "NCHW", "linear", coordinates)
    whole = all(axis.made % axis.size == 0 and axis.follows_lengths for axis in axes)
    if kind in ("nearest", "nearest-exact") and whole:
        return relax.op.image.resize2d(data, sizes, None, "NCHW", "nearest_neighbor", "asymmetric", "floor")
    return None


def weighted_neighbours(
    builder: relax.BlockBuilder, data: Any, axis: int, numbers: np.ndarray, weights: np.ndarray | None
) -> Any:
    """The sum of neighbours along an axis, each by its weight.

    Args:
        builder: of the function.
        data: the image.
        axis: that is resized.
        numbers: of the neighbours of each position of the result, [neighbours, made].
        weights: of the same shape; None for the one neighbour of each.
    """
    emit, total = builder.emit, None
    shape = [1] * data.ty.ndim
    shape[axis] = numbers.shape[1]
    for number, places in enumerate(numbers):
        part = emit(relax.op.take(data, relax.const(places, "int64"), axis, mode="clip"))
        if weights is not None:
            own = weights[number].astype(str(data.ty.dtype)).reshape(shape)
            part = emit(relax.op.multiply(part, relax.const(own)))
        total = part if total is None else emit(relax.op.add(total, part))
    return total


def _taps(kind: str, axis: _Axis) -> tuple[np.ndarray, np.ndarray | None]:
    """`numbers` and `weights` of `weighted_neighbours`."""
    at = np.arange(axis.made, dtype=np.float32)
    if kind.startswith("nearest"):
        offset = np.float32(0.5 if kind == "nearest-exact" else 0.0)
        doubled = kind == "nearest" and axis.made == 2 * axis.size
        step = np.float32(0.5) if doubled else axis.step
        numbers = np.floor((at + offset) * step).astype(np.int64)
        return np.minimum(numbers, axis.size - 1)[None], None
    if kind.endswith("antialias"):
        return _antialiased(kind, axis)
    where = at * axis.step if axis.corners else (at + np.float32(0.5)) * axis.step - np.float32(0.5)
    if kind == "linear":
        where = np.maximum(where, 0)
    reach = (0, 1) if kind == "linear" else (-1, 0, 1, 2)
    base = np.floor(where)
    numbers = np.stack([base + offset for offset in reach]).astype(np.int64)
    weights = np.stack([_kernel(kind, np.abs(where - base - offset), _CUBIC) for offset in reach])
    return np.clip(numbers, 0, axis.size - 1), weights


def _antialiased(kind: str, axis: _Axis) -> tuple[np.ndarray, np.ndarray]:
    """Neighbours as far apart as the step is long, where the image becomes smaller."""
    step = max(float(axis.step), 1.0)
    support = (1.0 if kind.startswith("linear") else 2.0) * step
    centre = float(axis.step) * (np.arange(axis.made) + 0.5)
    first = np.maximum((centre - support + 0.5).astype(np.int64), 0)
    end = np.minimum((centre + support + 0.5).astype(np.int64), axis.size)
    numbers = first + np.arange((end - first).max())[:, None]
    weights = _kernel(kind, np.abs((numbers - centre + 0.5) / step), _CUBIC_ANTIALIAS)
    weights = np.where(numbers < end, weights, 0.0)
    return np.minimum(numbers, axis.size - 1), weights / weights.sum(axis=0)


def _kernel(kind: str, distance: np.ndarray, a: float) -> np.ndarray:
    """The weight of a neighbour at a distance.

    Cubic: R. Keys, "Cubic convolution interpolation for digital image processing", 1981.
    """
    if kind.startswith("linear"):
        return np.maximum(1.0 - distance, 0.0)
    near = ((a + 2.0) * distance - (a + 3.0)) * distance**2 + 1.0
    far = ((distance - 5.0) * distance + 8.0) * distance * a - 4.0 * a
    return np.where(distance <= 1.0, near, np.where(distance < 2.0, far, 0.0))
