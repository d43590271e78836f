"""Weights as integers of 8 or 4 bits with a scale for each group of 32 along the inputs.

Rounding to the nearest, symmetric. 8 bits: value = weight * scale. 4 bits: value = (nibble - 8) * scale, two
nibbles a byte, the even element in the low one.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from host.importers.decoders.description import Matrix

GROUP = 32
BITS = {"": 0, "int8": 8, "int4": 4}
# Elements that are worked on at a time, so that the copies on the way stay small.
_BLOCK = 1 << 19
_THREADS = 16
_LARGEST, _LEAST = float(np.finfo(np.float16).max), float(np.finfo(np.float16).smallest_subnormal)
# Scales that are tried at 4 bits, as parts of the one under which the largest element becomes -8. A smaller
# one cuts that element off and is finer for all others.
_SHARES = (1.0, 0.95, 0.9, 0.85, 8 / 7)


@dataclass(frozen=True, eq=False)
class Quantised:
    """A quantised matrix.

    Attributes:
        bits: 4 or 8.
        weight: (N, K/2) uint8 for 4 bits, (N, K) int8 for 8.
        scales: (N, K/32) float16.
    """

    bits: int
    weight: np.ndarray
    scales: np.ndarray


@dataclass(frozen=True, eq=False)
class QuantisedPart:
    """A quantised matrix of the files, as part of a product.

    Attributes:
        matrix: where it lies in the files.
        values: its rows.
    """

    matrix: Matrix
    values: Quantised


def quantise(values: np.ndarray, bits: int) -> Quantised:
    """Quantise a matrix.

    Args:
        values: (N, K) float32, finite; K is a multiple of 32.
        bits: 4 or 8.

    Raises:
        ValueError: a value is too large for a scale of half precision.
    """
    rows, columns = values.shape
    limit = _LARGEST * (127 if bits == 8 else 8)
    if max(-float(values.min(initial=0)), float(values.max(initial=0))) > limit:
        raise ValueError(f"a value is beyond {limit:g}")
    weight = np.empty((rows, columns), np.int8) if bits == 8 else np.empty((rows, columns // 2), np.uint8)
    scales = np.empty((rows, columns // GROUP), np.float16)
    step = max(_BLOCK // columns, 1)

    def fill(begin: int) -> None:
        part = slice(begin, begin + step)
        groups = values[part].reshape(-1, columns // GROUP, GROUP)
        numbers, scales[part] = _eight(groups) if bits == 8 else _four(groups)
        numbers = numbers.reshape(-1, columns)
        weight[part] = numbers if bits == 8 else numbers[:, 0::2] | numbers[:, 1::2] << 4

    # NumPy lets other threads run while it computes.
    with ThreadPoolExecutor(min(os.cpu_count() or 1, _THREADS)) as executor:
        list(executor.map(fill, range(0, rows, step)))
    return Quantised(bits, weight, scales)


def dequantise(matrix: Quantised) -> np.ndarray:
    """The values (N, K) float32 that a quantised matrix stands for."""
    rows, columns = matrix.scales.shape[0], matrix.scales.shape[1] * GROUP
    if matrix.bits == 8:
        numbers = matrix.weight.astype(np.float32)
    else:
        numbers = np.empty((rows, columns), np.float32)
        numbers[:, 0::2] = matrix.weight & 15
        numbers[:, 1::2] = matrix.weight >> 4
        numbers -= 8
    groups = numbers.reshape(rows, -1, GROUP)
    groups *= matrix.scales.astype(np.float32)[:, :, None]
    return groups.reshape(rows, columns)


def _eight(groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    largest = np.abs(groups).max(axis=-1)
    scales = _half(largest / 127)
    # Among the smallest numbers of half precision, the nearest may be too small for the largest element.
    scales = np.where(
        scales.astype(np.float32) * 127.5 < largest, np.nextafter(scales, np.float16(np.inf)), scales
    )
    return _clipped(_numbers(groups, scales), -127, 127).astype(np.int8), scales


def _four(groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of the scales that are tried, for each group the one with the least squared error."""
    place = np.abs(groups).argmax(axis=-1)[..., None]
    whole = np.take_along_axis(groups, place, axis=-1)[..., 0] / -8
    best = np.full(whole.shape, np.inf, np.float32)
    scales = np.zeros(whole.shape, np.float16)
    for share in _SHARES:
        tried = _half(whole * np.float32(share))
        distance = _clipped(_numbers(groups, tried), -8, 7)
        distance *= tried.astype(np.float32)[..., None]
        distance -= groups
        error = np.einsum("ijk,ijk->ij", distance, distance)
        better = error < best
        best = np.where(better, error, best)
        scales = np.where(better, tried, scales)
    numbers = _clipped(_numbers(groups, scales), -8, 7)
    numbers += 8
    return numbers.astype(np.uint8), scales


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
