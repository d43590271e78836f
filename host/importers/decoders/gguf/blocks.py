"""Blocks of GGML's types: as float32, and as weights of 4 or 8 bits with a scale for each 32.

Blocks of 32, with d and m in half precision:

    Q4_0   d, 16 bytes: (nibble - 8) * d            Q4_1   d, m, 16 bytes: nibble * d + m
    Q5_0   d, 32 fifth bits, 16 bytes: (n - 16) * d Q5_1   d, m, 32 fifth bits, 16 bytes: n * d + m
    Q8_0   d, 32 signed bytes: n * d

The first half of a block lies in the low nibbles, the second half in the high ones. Blocks of 256:

    Q4_K   d, m, 8 pairs of 6 bits in 12 bytes, 128 bytes: nibble * d * first - m * second, for each 32
    Q5_K   the same with 256 fifth bits in 32 bytes before the nibbles
    Q6_K   128 bytes of low nibbles, 64 of high pairs of bits, 16 signed scales, d: (n - 32) * d * scale
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from host.importers.decoders.gguf.header import BLOCKS
from host.importers.decoders.quantise import GROUP, Quantised

# Types whose values are whole numbers with one scale for each 32, and the bits that hold them.
WHOLE = {"Q4_0": 4, "Q5_0": 8, "Q8_0": 8}
# Blocks that are worked on at a time.
_STEP = 1 << 14


def values(dtype: str, data: np.ndarray) -> np.ndarray:
    """The values of blocks as float32.

    Args:
        dtype: a type of whole blocks.
        data: (blocks, bytes of one) uint8.

    Returns:
        (blocks * elements of one).
    """
    made = np.empty((len(data), BLOCKS[dtype][0]), np.float32)
    for begin in range(0, len(data), _STEP):
        part = slice(begin, begin + _STEP)
        made[part] = _VALUES[dtype](data[part])
    return made.reshape(-1)


def whole(dtype: str, data: np.ndarray, columns: int, bits: int) -> Quantised:
    """Blocks of a type of `WHOLE` as they are, no value changed.

    Args:
        dtype: the type.
        data: (blocks, bytes of one) uint8.
        columns: elements of a row.
        bits: 8, or 4 of Q4_0.
    """
    scales = data[:, :2].copy().view(np.float16).reshape(-1, columns // GROUP)
    if bits == 4:
        nibbles = _nibbles(data[:, 2:])
        return Quantised(4, (nibbles[:, 0::2] | nibbles[:, 1::2] << 4).reshape(-1, columns // 2), scales)
    return Quantised(8, _numbers(dtype, data).reshape(-1, columns), scales)


def _numbers(dtype: str, data: np.ndarray) -> np.ndarray:
    """The whole numbers (blocks, 32) int8 of a type of `WHOLE`."""
    if dtype == "Q8_0":
        return np.ascontiguousarray(data[:, 2:]).view(np.int8)
    if dtype == "Q4_0":
        return np.asarray(_nibbles(data[:, 2:]).astype(np.int8) - np.int8(8))
    return np.asarray(_fives(data[:, 2:6], data[:, 6:]).astype(np.int8) - np.int8(16))


def _whole(dtype: str) -> Callable[[np.ndarray], np.ndarray]:
    return lambda data: _halves(data, 0, 1) * _numbers(dtype, data).astype(np.float32)


def _four_one(data: np.ndarray) -> np.ndarray:
    return np.asarray(_halves(data, 0, 1) * _nibbles(data[:, 4:]) + _halves(data, 2, 1))


def _five_one(data: np.ndarray) -> np.ndarray:
    return np.asarray(_halves(data, 0, 1) * _fives(data[:, 4:8], data[:, 8:]) + _halves(data, 2, 1))


def _four_k(data: np.ndarray) -> np.ndarray:
    return _with_least(data, _nibbles(data[:, 16:].reshape(-1, 32)).reshape(-1, 8, 32))


def _five_k(data: np.ndarray) -> np.ndarray:
    low = _nibbles(data[:, 48:].reshape(-1, 32)).reshape(-1, 8, 32)
    # Bit i of byte j belongs to element j of group i.
    high = data[:, 16:48, None] >> np.arange(8, dtype=np.uint8) & 1
    return _with_least(data, low | high.transpose(0, 2, 1) << 4)


def _with_least(data: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Numbers (blocks, 8, 32) by the scales of Q4_K and Q5_K, less the least value of each group."""
    packed = data[:, 4:16]
    first, second, last = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([first & 63, last & 15 | first >> 6 << 4], axis=1)
    least = np.concatenate([second & 63, last >> 4 | second >> 6 << 4], axis=1)
    scale, offset = _halves(data, 0, 1) * scales, _halves(data, 2, 1) * least
    return np.asarray(scale[..., None] * numbers - offset[..., None]).reshape(-1, 256)


def _six_k(data: np.ndarray) -> np.ndarray:
    low = _nibbles(data[:, :128].reshape(-1, 64)).reshape(-1, 2, 4, 32)
    pairs = data[:, 128:192].reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    numbers = (low | pairs << 4).astype(np.int8) - np.int8(32)
    scales = _halves(data, 208, 1) * np.ascontiguousarray(data[:, 192:208]).view(np.int8)
    return np.asarray(numbers.reshape(-1, 16, 16) * scales[..., None]).reshape(-1, 256)


def _nibbles(data: np.ndarray) -> np.ndarray:
    """(n, bytes) to (n, 2 * bytes): all low ones, then all high ones."""
    return np.concatenate([data & 15, data >> 4], axis=1)


def _fives(fifth: np.ndarray, data: np.ndarray) -> np.ndarray:
    """Numbers of 5 bits (n, 32): the fifth bits of each block are its own 32 bits, the lowest first."""
    return np.asarray(_nibbles(data) | np.unpackbits(fifth, axis=1, bitorder="little") << 4)


def _halves(data: np.ndarray, begin: int, count: int) -> np.ndarray:
    """Numbers in half precision as float32."""
    return data[:, begin : begin + 2 * count].copy().view(np.float16).astype(np.float32)


_VALUES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    **{dtype: _whole(dtype) for dtype in WHOLE},
    "Q4_1": _four_one,
    "Q5_1": _five_one,
    "Q4_K": _four_k,
    "Q5_K": _five_k,
    "Q6_K": _six_k,
}
