"""Convolutions of each channel by itself with arguments and results, as the lowering writes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx

from tests.unit.schedules.cuda.cuda_cases import Case

_GENERATOR = np.random.default_rng(0)


@dataclass(frozen=True)
class Shape:
    """Of a convolution.

    Attributes:
        size: rows and columns of the image.
        channels: of the image.
        kernel: rows and columns of the window.
        stride, distance: places from one result, or tap, to the next.
        pad: places around the image.
        images: number of them.
    """

    size: tuple[int, int]
    channels: int
    kernel: tuple[int, int] = (3, 3)
    stride: int = 1
    distance: int = 1
    pad: int = 1
    images: int = 1

    @property
    def made(self) -> tuple[int, ...]:
        """Shape of the result."""
        sides = [
            (extent + 2 * self.pad - (taps - 1) * self.distance - 1) // self.stride + 1
            for extent, taps in zip(self.size, self.kernel, strict=True)
        ]
        return (self.images, *sides, self.channels)


def _summed(shape: Shape, image: te.Tensor, weights: te.Tensor, fill: int, wide: str) -> te.Tensor:
    """The sums of a convolution whose image and weights are widened, with `fill` around the image."""
    (height, width), pad = shape.size, shape.pad
    nothing = tirx.const(fill, wide)
    padded = te.compute(
        (shape.images, height + 2 * pad, width + 2 * pad, shape.channels),
        lambda n, y, x, c: tirx.if_then_else(
            tirx.all(y >= pad, y < height + pad, x >= pad, x < width + pad),
            image[n, y - pad, x - pad, c].astype(wide),
            nothing,
        ),
        name="pad_temp",
    )
    taps = te.compute(weights.shape, lambda *i: weights(*i).astype(wide), name="widened")
    axes = [te.reduce_axis((0, extent), f"r{n}") for n, extent in enumerate(shape.kernel)]

    def element(n: Any, y: Any, x: Any, c: Any) -> Any:
        place = [
            index * shape.stride + axis * shape.distance for index, axis in zip((y, x), axes, strict=True)
        ]
        return te.sum(padded[n, place[0], place[1], c] * taps[axes[0], axes[1], c], axis=axes)

    return te.compute(shape.made, element, name="depthwise_conv2d")


def _numpy(shape: Shape, image: np.ndarray, weights: np.ndarray, fill: int) -> np.ndarray:
    pad, (_, rows, columns, _) = shape.pad, shape.made
    around = ((0, 0), (pad, pad), (pad, pad), (0, 0))
    padded = np.pad(image, around, constant_values=fill)
    total = np.zeros(shape.made, image.dtype)
    for y in range(shape.kernel[0]):
        for x in range(shape.kernel[1]):
            first, second = y * shape.distance, x * shape.distance
            end = (first + (rows - 1) * shape.stride + 1, second + (columns - 1) * shape.stride + 1)
            total += padded[:, first : end[0] : shape.stride, second : end[1] : shape.stride] * weights[y, x]
    return total


def of_halves(shape: Shape) -> Case:
    """A bias and a ReLU6 follow, and rounding to halves."""
    a = te.placeholder((shape.images, *shape.size, shape.channels), "float16", "A")
    w = te.placeholder((*shape.kernel, shape.channels), "float16", "W")
    bias = te.placeholder((shape.channels,), "float32", "bias")
    sums = _summed(shape, a, w, 0, "float32")
    zero, six = (tirx.const(number, "float32") for number in (0, 6))
    ending = te.compute(
        shape.made,
        lambda *i: te.max(te.min(sums(*i) + bias[i[-1]], six), zero).astype("float16"),
        name="epilogue",
    )
    shapes = ((shape.images, *shape.size, shape.channels), (*shape.kernel, shape.channels), (shape.channels,))
    given = [_GENERATOR.standard_normal(one) for one in shapes]
    given = [one.astype(kind) for one, kind in zip(given, ("float16", "float16", "float32"), strict=True)]
    wanted = _numpy(shape, given[0].astype("float64"), given[1].astype("float64"), 0) + given[2]
    return Case(
        te.create_prim_func([a, w, bias, ending]), tuple(given), np.clip(wanted, 0, 6).astype("float16")
    )


def of_bytes(shape: Shape, dtype: str = "int8", fill: int = 7) -> Case:
    """Numbers of their own by channel are added and multiplied, then rounded to bytes."""
    a = te.placeholder((shape.images, *shape.size, shape.channels), dtype, "A")
    w = te.placeholder((*shape.kernel, shape.channels), "int8", "W")
    shift = te.placeholder((shape.channels,), "int32", "shift")
    scale = te.placeholder((shape.channels,), "float32", "scale")
    sums = _summed(shape, a, w, fill, "int32")
    low, high = (-128, 127) if dtype == "int8" else (0, 255)

    def end(*i: Any) -> Any:
        real = (sums(*i) + shift[i[-1]]).astype("float32") * scale[i[-1]]
        rounded = te.max(
            te.min(tirx.nearbyint(real), tirx.const(high, "float32")), tirx.const(low, "float32")
        )
        return rounded.astype("int32").astype(dtype)

    ending = te.compute(shape.made, end, name="epilogue")
    image = _GENERATOR.integers(low, high + 1, (shape.images, *shape.size, shape.channels)).astype(dtype)
    weights = _GENERATOR.integers(-127, 128, (*shape.kernel, shape.channels)).astype("int8")
    shifts = _GENERATOR.integers(-99, 100, shape.channels).astype("int32")
    scales = _GENERATOR.uniform(0.001, 0.003, shape.channels).astype("float32")
    total = _numpy(shape, image.astype("int32"), weights.astype("int32"), fill) + shifts
    wanted = np.clip(np.rint(total.astype("float32") * scales), low, high).astype(dtype)
    return Case(te.create_prim_func([a, w, shift, scale, ending]), (image, weights, shifts, scales), wanted)
