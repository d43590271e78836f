"""Inputs for golden cases: drawn by seed, within what the model accepts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from device_agent.contract.tensors import numpy_type
from host.model import TensorSpec


@dataclass(frozen=True, eq=False)
class InputRange:
    """The range of values of an input.

    Attributes:
        spec: name, shape and type.
        low, high: bounds of an integer input, high excluded; None where the model does not say.
        mask: whether it marks valid positions with 1.
        value: the one value that fits, for shapes, axes and the like.
        image: width and height of the image that it has regions of, as corners x, y, x, y along its last
            axis, in units of the regions.
        images: how many images there are, where the number of a region's image stands before its corners.
        ascending: whether the values begin with 0, and none is below the one before it.
    """

    spec: TensorSpec
    low: int | None = None
    high: int | None = None
    mask: bool = False
    value: np.ndarray | None = None
    image: tuple[float, float] | None = None
    images: int | None = None
    ascending: bool = False


@dataclass(frozen=True)
class Style:
    """How values are drawn; later styles are tried when earlier ones give equal or NaN outputs.

    Attributes:
        scale: of floating-point values.
        positive: whether those are all above zero.
        integer_low, integer_high: range of whole numbers that the model says nothing about.
        all_bytes: whether numbers of 8 bits take all their values.
    """

    scale: float
    positive: bool = False
    integer_low: int = 0
    integer_high: int = 10
    all_bytes: bool = False


STYLES = (
    Style(1.0, all_bytes=True),
    Style(4.0, integer_low=1, integer_high=4),
    Style(1.0, positive=True, integer_high=2),
    Style(20.0, integer_low=1, integer_high=100),
    Style(0.2, positive=True, integer_low=1, integer_high=2),
    Style(400.0, integer_high=1),
)


def looks_like_mask(name: str) -> bool:
    """Whether an integer input of this name marks positions."""
    return "mask" in name.lower()


def draw(
    ranges: Sequence[InputRange], style: Style, generator: np.random.Generator
) -> tuple[np.ndarray, ...]:
    """Random inputs, one array for each range."""
    return tuple(_draw_one(entry, style, generator) for entry in ranges)


def _draw_one(entry: InputRange, style: Style, generator: np.random.Generator) -> np.ndarray:
    spec = entry.spec
    dtype = numpy_type(spec.dtype)
    if entry.value is not None:
        return entry.value.astype(dtype)
    if entry.image is not None:
        return _regions(entry, entry.image, generator).astype(dtype)
    if entry.mask and dtype.kind in "iufb":
        return _mask(spec.shape, generator).astype(dtype)
    if dtype.kind == "b":
        return np.asarray(generator.random(spec.shape) < 0.5)
    if dtype.kind in "iu":
        # A single number is more often a length or a step, which cannot be 0, than an index.
        low = max(style.integer_low, int(spec.shape == ())) if entry.low is None else entry.low
        high = style.integer_high if entry.high is None else entry.high
        if style.all_bytes and dtype.itemsize == 1 and entry.high is None:
            low, high = np.iinfo(dtype).min, np.iinfo(dtype).max + 1  # images and quantised values
        drawn = np.asarray(generator.integers(low, max(high, low + 1), spec.shape)).astype(dtype)
        return _ascending(drawn) if entry.ascending else drawn
    return _real(spec.shape, style, generator).astype(dtype)


def _ascending(values: np.ndarray) -> np.ndarray:
    values = np.sort(values, axis=-1)
    values[..., :1] = 0
    return values


def _mask(shape: tuple[int, ...], generator: np.random.Generator) -> np.ndarray:
    """Ones up to a random length of at least half, zeros after it, along the last axis."""
    if not shape:
        return np.ones(shape)
    length = shape[-1]
    valid = generator.integers((length + 1) // 2, length + 1, (*shape[:-1], 1))
    return np.asarray(np.arange(length) < valid)


def _regions(entry: InputRange, image: tuple[float, float], generator: np.random.Generator) -> np.ndarray:
    """Regions within an image, each with its lesser corner first."""
    outer = entry.spec.shape[:-1]
    corners = np.sort(generator.random((*outer, 2, 2)), axis=-2)
    regions = (corners * image).reshape(*outer, 4)
    if entry.images is None:
        return np.asarray(regions)
    return np.concatenate([generator.integers(0, entry.images, (*outer, 1)), regions], axis=-1)


def _real(shape: tuple[int, ...], style: Style, generator: np.random.Generator) -> np.ndarray:
    """Noise on top of a smooth field that differs between cases.

    Noise alone is averaged out by a deep network's pooling, and its outputs then hardly differ.
    """
    values = generator.standard_normal(shape)
    if len(shape) == 4 and min(shape[2:]) >= 8:
        coarse = generator.standard_normal((*shape[:2], 4, 4)) * 1.5
        rows, columns = (np.linspace(0, 3.999, size).astype(int) for size in shape[2:])
        values += coarse[:, :, rows][:, :, :, columns]
    elif values.size > 1:
        values += generator.standard_normal()
    values = values * style.scale
    return np.asarray(np.abs(values) + 0.01 if style.positive else values)
