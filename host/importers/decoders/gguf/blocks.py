"""Blocks of GGML's types as quantised weights, every value kept.

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
from typing import NamedTuple

import numpy as np

from host.importers.decoders.quantise import MINIMUM, Form, Quantised


class _Parts(NamedTuple):
    """What blocks hold, each (blocks, numbers of one); half precision as its bytes."""

    numbers: np.ndarray
    scales: np.ndarray
    multipliers: np.ndarray | None = None
    minima: np.ndarray | None = None
    minimum_multipliers: np.ndarray | None = None


class _Type(NamedTuple):
    """The form of a type, and what takes its blocks apart."""

    form: Form
    parts: Callable[[np.ndarray], _Parts]


def form_of(dtype: str) -> Form | None:
    """The form of a type of whole blocks; None of others."""
    return _TYPES[dtype].form if dtype in _TYPES else None


def whole(dtype: str, data: np.ndarray, columns: int) -> Quantised:
    """Blocks of a type as they are, no value changed.

    Args:
        dtype: one that `form_of` knows.
        data: (blocks, bytes of one) uint8.
        columns: elements of a row.
    """
    form, parts = _TYPES[dtype].form, _TYPES[dtype].parts(data)
    numbers = parts.numbers.reshape(-1, columns)
    weight = numbers[:, 0::2] | numbers[:, 1::2] << 4 if form.bits == 4 else numbers.view(np.int8)
    minima = None if parts.minima is None else _rows(parts.minima, np.float16, columns // form.block)
    multipliers, least = (
        None if one is None else _rows(one, np.int8, columns // form.group)
        for one in (parts.multipliers, parts.minimum_multipliers)
    )
    if least is not None and minima is not None:
        # What GGML takes off.
        minima = -minima
    scales = _rows(parts.scales, np.float16, columns // form.block)
    return Quantised(form, weight, scales, multipliers, None, minima, least)


def _rows(data: np.ndarray, dtype: type, count: int) -> np.ndarray:
    """Bytes of each block as numbers of rows."""
    return np.ascontiguousarray(data).view(dtype).reshape(-1, count)


def _four_zero(data: np.ndarray) -> _Parts:
    return _Parts(_nibbles(data[:, 2:]), data[:, :2])


def _four_one(data: np.ndarray) -> _Parts:
    return _Parts(_nibbles(data[:, 4:]), data[:, :2], minima=data[:, 2:4])


def _five_zero(data: np.ndarray) -> _Parts:
    return _Parts(_fives(data[:, 2:6], data[:, 6:]) - np.uint8(16), data[:, :2])


def _five_one(data: np.ndarray) -> _Parts:
    return _Parts(_fives(data[:, 4:8], data[:, 8:]), data[:, :2], minima=data[:, 2:4])


def _eight_zero(data: np.ndarray) -> _Parts:
    return _Parts(np.ascontiguousarray(data[:, 2:]), data[:, :2])


def _four_k(data: np.ndarray) -> _Parts:
    return _with_least(data, _nibbles(data[:, 16:].reshape(-1, 32)))


def _five_k(data: np.ndarray) -> _Parts:
    low = _nibbles(data[:, 48:].reshape(-1, 32)).reshape(-1, 8, 32)
    # Bit i of byte j belongs to element j of group i.
    high = data[:, 16:48, None] >> np.arange(8, dtype=np.uint8) & 1
    return _with_least(data, low | high.transpose(0, 2, 1) << 4)


def _with_least(data: np.ndarray, numbers: np.ndarray) -> _Parts:
    """Numbers with the scales and minima of Q4_K and Q5_K."""
    packed = data[:, 4:16]
    first, second, last = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([first & 63, last & 15 | first >> 6 << 4], axis=1)
    least = np.concatenate([second & 63, last >> 4 | second >> 6 << 4], axis=1)
    return _Parts(np.ascontiguousarray(numbers), data[:, :2], scales, data[:, 2:4], least)


def _six_k(data: np.ndarray) -> _Parts:
    low = _nibbles(data[:, :128].reshape(-1, 64)).reshape(-1, 2, 4, 32)
    pairs = data[:, 128:192].reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    return _Parts((low | pairs << 4) - np.uint8(32), data[:, 208:], data[:, 192:208])


def _nibbles(data: np.ndarray) -> np.ndarray:
    """(n, bytes) to (n, 2 * bytes): all low ones, then all high ones."""
    return np.concatenate([data & 15, data >> 4], axis=1)


def _fives(fifth: np.ndarray, data: np.ndarray) -> np.ndarray:
    """Numbers of 5 bits (n, 32): the fifth bits of each block are its own 32 bits, the lowest first."""
    return np.asarray(_nibbles(data) | np.unpackbits(fifth, axis=1, bitorder="little") << 4)


_TYPES = {
    "Q4_0": _Type(Form(4), _four_zero),
    "Q4_1": _Type(Form(4, asymmetry=MINIMUM), _four_one),
    "Q5_0": _Type(Form(8), _five_zero),
    "Q5_1": _Type(Form(8, asymmetry=MINIMUM), _five_one),
    "Q8_0": _Type(Form(8), _eight_zero),
    "Q4_K": _Type(Form(4, block=256, asymmetry=MINIMUM, multiplied=True), _four_k),
    "Q5_K": _Type(Form(8, block=256, asymmetry=MINIMUM, multiplied=True), _five_k),
    "Q6_K": _Type(Form(8, group=16, block=256, multiplied=True), _six_k),
}
