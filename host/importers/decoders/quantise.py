"""Weights as integers of 8 or 4 bits with scales along the inputs: their forms, and rounding to one of them.

Rounding is to the nearest, with a scale for each 32, 64 or 128. 8 bits: value = weight * scale. 4 bits:
value = (nibble - 8) * scale, or (nibble - zero) * scale with a zero point of each group; two nibbles a byte,
the even element in the low one. Weights of files have other forms too (`Form`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from host.importers.decoders.description import Matrix

GROUP = 32
# Inputs that may share a scale of what is rounded here.
GROUPS = (32, 64, 128)
ZERO, MINIMUM = "zero", "minimum"
BITS = {"": 0, "int8": 8, "int4": 4}
# Elements that are worked on at a time, so that the copies on the way stay small.
_BLOCK = 1 << 19
_THREADS = 16
_LARGEST, _LEAST = float(np.finfo(np.float16).max), float(np.finfo(np.float16).smallest_subnormal)
# Scales that are tried at 4 bits, as parts of the one under which the largest element becomes -8. A smaller
# one cuts that element off and is finer for all others.
_SHARES = (1.0, 0.95, 0.9, 0.85, 8 / 7)
# More of them where inputs differ in what they weigh, and how often a scale is fitted to its numbers then.
_MORE_SHARES, _FITS = (0.8, 0.75, 0.7, 0.65), 2
# The same with zero points, as parts of the scale under which the smallest and the largest element fit.
_SPREADS = (1.0, 0.95, 0.9, 0.85, 0.8)


@dataclass(frozen=True)
class Form:
    """How a matrix is quantised.

    Values are number * scale; (number - zero) * scale with zero points; number * scale + minimum with minima.
    A scale may be times a multiplier, and a minimum times another. All products of these are exact in
    float32, so that the one sum of the last form is all that is rounded.

    Attributes:
        bits: of a number, 4 or 8. Of 4 bits, nibbles are 8 more than the numbers if the form is symmetric.
        group: inputs that share multipliers, where there are some: 16 or 32.
        block: inputs that share a scale, and a zero point or a minimum: a multiple of 32.
        asymmetry: "zero", "minimum", or "" of a symmetric form.
        multiplied: whether there are multipliers.
    """

    bits: int
    group: int = GROUP
    block: int = GROUP
    asymmetry: str = ""
    multiplied: bool = False

    def bytes_of(self, rows: int, columns: int) -> int:
        """Bytes of a matrix."""
        zeros = {"": 0, ZERO: 1, MINIMUM: 2}[self.asymmetry]
        multipliers = (2 if self.asymmetry == MINIMUM else 1) if self.multiplied else 0
        others = (2 + zeros) * (columns // self.block) + multipliers * (columns // self.group)
        return rows * (columns * self.bits // 8 + others)


@dataclass(frozen=True, eq=False)
class Quantised:
    """A quantised matrix.

    Attributes:
        form: of it.
        weight: (N, K/2) uint8 for 4 bits, (N, K) int8 for 8.
        scales: (N, K/block) float16.
        multipliers: (N, K/group) int8; None without, as the others.
        zeros: (N, K/block) int8, from 0 to 16 for 4 bits.
        minima: (N, K/block) float16.
        minimum_multipliers: (N, K/group) int8.
    """

    form: Form
    weight: np.ndarray
    scales: np.ndarray
    multipliers: np.ndarray | None = None
    zeros: np.ndarray | None = None
    minima: np.ndarray | None = None
    minimum_multipliers: np.ndarray | None = None

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """All that there are, in the order of the attributes, which is that of the compiler's operations."""
        found = (
            self.weight,
            self.scales,
            self.multipliers,
            self.zeros,
            self.minima,
            self.minimum_multipliers,
        )
        return tuple(one for one in found if one is not None)

    @classmethod
    def of(cls, form: Form, arrays: Sequence[np.ndarray]) -> Quantised:
        """A matrix out of `arrays`."""
        weight, scales, *rest = arrays
        names = ["multipliers"] if form.multiplied else []
        if form.asymmetry == ZERO:
            names.append("zeros")
        elif form.asymmetry == MINIMUM:
            names += ["minima", "minimum_multipliers"] if form.multiplied else ["minima"]
        return cls(form, weight, scales, **dict(zip(names, rest, strict=True)))


@dataclass(frozen=True, eq=False)
class QuantisedPart:
    """A quantised matrix of the files, as part of a product.

    Attributes:
        matrix: where it lies in the files.
        values: its rows.
        order: (K) the input that each column of the values is for; None where they are in order.
    """

    matrix: Matrix
    values: Quantised
    order: np.ndarray | None = None


def block_of(columns: int, group: int) -> int:
    """Inputs that share a scale, for a matrix: those that are asked for, or half of them and so on.

    Args:
        columns: inputs, K.
        group: one of `GROUPS`.

    Returns:
        A divisor of the inputs of 32 or more; 0 where there is none, and the matrix stays in float32.
    """
    return next((size for size in reversed(GROUPS) if size <= group and columns % size == 0), 0)


def quantise(
    values: np.ndarray,
    bits: int,
    block: int = GROUP,
    asymmetry: str = "",
    importance: np.ndarray | None = None,
) -> Quantised:
    """Quantise a matrix.

    Args:
        values: (N, K) float32, finite; K is a multiple of the block.
        bits: 4 or 8.
        block: inputs that share a scale.
        asymmetry: "zero" for a zero point of each block, with 4 bits; "" for none.
        importance: (K) what an error in the weights of an input weighs, such as the mean square of the input;
            None for as much of each. At 8 bits it changes nothing, as no scales are tried.

    Raises:
        ValueError: a value is too large for a scale of half precision.
    """
    rows, columns = values.shape
    limit = _LARGEST * (127 if bits == 8 else 8)
    if max(-float(values.min(initial=0)), float(values.max(initial=0))) > limit:
        raise ValueError(f"a value is beyond {limit:g}")
    weight = np.empty((rows, columns), np.int8) if bits == 8 else np.empty((rows, columns // 2), np.uint8)
    scales = np.empty((rows, columns // block), np.float16)
    zeros = np.empty(scales.shape, np.int8) if asymmetry == ZERO else None
    step = max(_BLOCK // columns, 1)
    weighs = None if importance is None else _relative(importance.reshape(columns // block, block))

    def fill(begin: int) -> None:
        part = slice(begin, begin + step)
        groups = values[part].reshape(-1, columns // block, block)
        if zeros is None:
            numbers, scales[part] = _eight(groups) if bits == 8 else _four(groups, weighs)
        else:
            numbers, scales[part], zeros[part] = _four_with_zeros(groups, weighs)
        numbers = numbers.reshape(-1, columns)
        weight[part] = numbers if bits == 8 else numbers[:, 0::2] | numbers[:, 1::2] << 4

    # NumPy lets other threads run while it computes.
    with ThreadPoolExecutor(min(os.cpu_count() or 1, _THREADS)) as executor:
        list(executor.map(fill, range(0, rows, step)))
    return Quantised(Form(bits, block=block, asymmetry=asymmetry), weight, scales, zeros=zeros)


def dequantise(matrix: Quantised) -> np.ndarray:
    """The values (N, K) float32 that a quantised matrix represents."""
    form, rows = matrix.form, len(matrix.scales)
    if form.bits == 8:
        numbers = matrix.weight.astype(np.float32)
    else:
        numbers = np.empty((rows, 2 * matrix.weight.shape[1]), np.float32)
        numbers[:, 0::2] = matrix.weight & 15
        numbers[:, 1::2] = matrix.weight >> 4
        numbers -= 0 if form.asymmetry else 8
    values = numbers.reshape(rows, -1, form.group if form.multiplied else form.block)
    count = values.shape[1]
    if matrix.zeros is not None:
        values -= _of_groups(matrix.zeros, None, count)
    values *= _of_groups(matrix.scales, matrix.multipliers, count)
    if matrix.minima is not None:
        values += _of_groups(matrix.minima, matrix.minimum_multipliers, count)
    return numbers


def in_order(values: np.ndarray, order: np.ndarray | None) -> np.ndarray:
    """Values (N, K) with their columns in the order of the inputs, of `QuantisedPart.order`."""
    if order is None:
        return values
    found = np.empty_like(values)
    found[:, order] = values
    return found


def _of_groups(blocks: np.ndarray, multipliers: np.ndarray | None, count: int) -> np.ndarray:
    """Numbers of blocks, by multipliers of groups where there are some: (N, count, 1) float32."""
    found = blocks.astype(np.float32).repeat(count // blocks.shape[1], axis=1)
    return np.asarray(found if multipliers is None else found * multipliers)[:, :, None]


def _eight(groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    largest = np.abs(groups).max(axis=-1)
    scales = _half(largest / 127)
    # Among the smallest numbers of half precision, the nearest may be too small for the largest element.
    scales = np.where(
        scales.astype(np.float32) * 127.5 < largest, np.nextafter(scales, np.float16(np.inf)), scales
    )
    return _clipped(_numbers(groups, scales), -127, 127).astype(np.int8), scales


def _relative(importance: np.ndarray) -> np.ndarray:
    """Square roots of what errors weigh, as parts of the largest of a group; 1 where none weighs anything."""
    largest = importance.max(axis=-1, keepdims=True)
    parts = np.divide(importance, largest, out=np.ones(importance.shape), where=largest > 0)
    return np.asarray(np.sqrt(parts), np.float32)


def _four(groups: np.ndarray, weighs: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Of the scales that are tried, for each group the one with the least squared error.

    Args:
        groups: (n, K/block, block) of the values.
        weighs: (K/block, block) factors of errors; None for 1.
    """
    place = np.abs(groups).argmax(axis=-1)[..., None]
    whole = np.take_along_axis(groups, place, axis=-1)[..., 0] / -8
    best = np.full(whole.shape, np.inf, np.float32)
    scales = np.zeros(whole.shape, np.float16)
    for share in _SHARES if weighs is None else _SHARES + _MORE_SHARES:
        tried = _half(whole * np.float32(share))
        error = _error(_clipped(_numbers(groups, tried), -8, 7), groups, tried, weighs)
        better = error < best
        best = np.where(better, error, best)
        scales = np.where(better, tried, scales)
    for _ in range(0 if weighs is None else _FITS):
        tried = _fitted(groups, scales, weighs)
        error = _error(_clipped(_numbers(groups, tried), -8, 7), groups, tried, weighs)
        better = error < best
        best = np.where(better, error, best)
        scales = np.where(better, tried, scales)
    numbers = _clipped(_numbers(groups, scales), -8, 7)
    numbers += 8
    return numbers.astype(np.uint8), scales


def _fitted(groups: np.ndarray, scales: np.ndarray, weighs: np.ndarray | None) -> np.ndarray:
    """The scales with the least error for the numbers that others make."""
    numbers = _clipped(_numbers(groups, scales), -8, 7)
    given = groups
    if weighs is not None:
        numbers, given = numbers * weighs, groups * weighs
    below = np.einsum("ijk,ijk->ij", numbers, numbers)
    above = np.einsum("ijk,ijk->ij", numbers, given)
    return _half(np.divide(above, below, out=np.zeros_like(above), where=below > 0))


def _four_with_zeros(
    groups: np.ndarray, weighs: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of the ranges that are tried, and of the symmetric ones, for each group the one with the least error.

    Zero has a number of its own in every range.
    """
    found, scales = _four(groups, weighs)
    zeros = np.full(scales.shape, 8, np.int8)
    best = _squared(groups, found, scales, zeros, weighs)
    low, high = np.minimum(groups.min(axis=-1), 0.0), np.maximum(groups.max(axis=-1), 0.0)
    for spread in _SPREADS:
        tried = _half((high - low) * np.float32(spread / 15))
        wide = tried.astype(np.float32)
        zero = np.rint(np.divide(-low * spread, wide, out=np.zeros_like(wide), where=wide != 0))
        zero = np.clip(zero, 0, 15)
        numbers = _numbers(groups, tried)
        numbers += zero[..., None]
        numbers = _clipped(numbers, 0, 15)
        error = _squared(groups, numbers, tried, zero, weighs)
        better = error < best
        best = np.where(better, error, best)
        scales, zeros = np.where(better, tried, scales), np.where(better, zero.astype(np.int8), zeros)
        found = np.where(better[..., None], numbers.astype(np.uint8), found)
    return found, scales, zeros


def _squared(
    groups: np.ndarray,
    numbers: np.ndarray,
    scales: np.ndarray,
    zeros: np.ndarray,
    weighs: np.ndarray | None,
) -> np.ndarray:
    """The squared error of each group."""
    distance = numbers.astype(np.float32)
    distance -= zeros.astype(np.float32)[..., None]
    return _error(distance, groups, scales, weighs)


def _error(
    distance: np.ndarray, groups: np.ndarray, scales: np.ndarray, weighs: np.ndarray | None
) -> np.ndarray:
    """The squared error of each group, by its numbers around zero, which are overwritten."""
    distance *= scales.astype(np.float32)[..., None]
    distance -= groups
    if weighs is not None:
        distance *= weighs
    return np.asarray(np.einsum("ijk,ijk->ij", distance, distance))


def _half(scales: np.ndarray) -> np.ndarray:
    """In half precision; what is not zero does not become zero, nor infinite."""
    size = np.clip(np.abs(scales), _LEAST, _LARGEST).astype(np.float16)
    return np.where(scales == 0, np.float16(0), np.copysign(size, scales).astype(np.float16))


def _numbers(groups: np.ndarray, scales: np.ndarray) -> np.ndarray:
    wide = scales.astype(np.float32)
    inverse = np.divide(1.0, wide, out=np.zeros_like(wide), where=wide != 0)
    numbers = np.asarray(groups * inverse[..., None])
    np.rint(numbers, out=numbers)
    return numbers


def _clipped(numbers: np.ndarray, low: int, high: int) -> np.ndarray:
    # Half the time of np.clip.
    np.maximum(numbers, low, out=numbers)
    return np.asarray(np.minimum(numbers, high, out=numbers))
