"""Blocks of GGML's types have the values that GGML gives them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from host.importers.decoders.gguf.blocks import form_of, whole
from host.importers.decoders.gguf.header import BLOCKS
from host.importers.decoders.quantise import dequantise

# Of one block of `block_of`, by the package gguf 0.19.0: elements 1, n / 2 + 1 and n - 1, the sum, and the
# sum of each element times one more than its number modulo 17.
KNOWN = {
    "Q4_0": (-0.189697265625, -0.37939453125, -0.37939453125, -1.56500244140625, -15.31805419921875),
    "Q4_1": (0.26031494140625, 0.402587890625, 0.402587890625, 9.89508056640625, 76.330078125),
    "Q5_0": (0.37939453125, -0.6639404296875, 0.0948486328125, -2.13409423828125, -28.78656005859375),
    "Q5_1": (0.45001220703125, 1.2562255859375, 0.4974365234375, 22.98419189453125, 189.62677001953125),
    "Q8_0": (0.189697265625, -5.121826171875, -5.2166748046875, -2.2763671875, 47.18719482421875),
    "Q4_K": (2.42034912109375, 2.59759521484375, 0.55731201171875, 2863.09912109375, 25404.482360839844),
    "Q5_K": (2.42034912109375, 2.59759521484375, 0.55731201171875, 5553.00634765625, 49335.551208496094),
    "Q6_K": (-2.1815185546875, 4.6475830078125, 13.658203125, -703.966552734375, -12444.093200683594),
}


def block_of(dtype: str) -> np.ndarray:
    block = ((np.arange(BLOCKS[dtype][1]) * 73 + 41) % 256).astype(np.uint8)
    scale = slice(208, 210) if dtype == "Q6_K" else slice(0, 2)
    block[scale] = (0x12, 0x2A)
    if dtype in ("Q4_1", "Q5_1", "Q4_K", "Q5_K"):
        block[2:4] = (0x34, 0xA6)
    return block[None]


def values(dtype: str, data: np.ndarray, columns: int = 0) -> np.ndarray:
    return dequantise(whole(dtype, data, columns or BLOCKS[dtype][0])).reshape(-1)


def test_every_type_of_blocks_is_known() -> None:
    assert set(KNOWN) == {dtype for dtype, (elements, _) in BLOCKS.items() if elements > 1}
    assert all((form_of(dtype) is not None) == (dtype in KNOWN) for dtype in (*BLOCKS, "IQ4_NL"))


@pytest.mark.parametrize("dtype", KNOWN)
def test_values_are_those_of_ggml(dtype: str) -> None:
    found = values(dtype, block_of(dtype)).astype(np.float64)
    size = len(found)
    assert size == BLOCKS[dtype][0]
    weighted = (found * (np.arange(size) % 17 + 1)).sum()
    made = (found[1], found[size // 2 + 1], found[-1], found.sum(), weighted)
    assert made == pytest.approx(KNOWN[dtype], rel=1e-9)


def decoded(dtype: str, block: bytes) -> Iterator[np.float32]:
    """The values of a block, one by one, after the documentation of ggml's types, in float32."""
    half = [np.float32(one) for one in np.frombuffer(block[:4], np.float16)]
    size = 256 if dtype.endswith("K") else 32
    for place in range(size):
        if size == 32:
            yield _short(dtype, block, place, half)
        elif dtype == "Q6_K":
            # Halves of 128: nibbles of two times 32 in each 64 bytes, pairs of bits of four times 32 in 32.
            side, part, column = place // 128, place // 32 % 4, place % 32
            nibble = block[64 * side + 32 * (part % 2) + column] >> 4 * (part // 2) & 15
            number = nibble | (block[128 + 32 * side + column] >> 2 * part & 3) << 4
            scale = int.from_bytes(block[192 + place // 16 : 193 + place // 16], "little", signed=True)
            d = np.float32(np.frombuffer(block[208:], np.float16)[0])
            yield d * np.float32(scale) * np.float32(number - 32)
        else:
            group = place // 32
            begin = 48 if dtype == "Q5_K" else 16
            number = block[begin + 32 * (group // 2) + place % 32] >> 4 * (group % 2) & 15
            if dtype == "Q5_K":
                number |= (block[16 + place % 32] >> group & 1) << 4
            scale, least = _six_bits(block[4:16], group)
            yield half[0] * np.float32(scale) * np.float32(number) - half[1] * np.float32(least)


def _short(dtype: str, block: bytes, place: int, half: list[np.float32]) -> np.float32:
    begin = 4 if dtype.endswith("_1") else 2
    if dtype == "Q8_0":
        return half[0] * np.float32(int.from_bytes(block[2 + place : 3 + place], "little", signed=True))
    number = 0
    if dtype.startswith("Q5"):
        number = (int.from_bytes(block[begin : begin + 4], "little") >> place & 1) << 4
        begin += 4
    number |= block[begin + place % 16] >> 4 * (place // 16) & 15
    if dtype.endswith("_1"):
        return half[0] * np.float32(number) + half[1]
    return half[0] * np.float32(number - (16 if dtype == "Q5_0" else 8))


def _six_bits(packed: bytes, group: int) -> tuple[int, int]:
    """Scale and least value of a group: the upper two bits of the last four are in the bytes of the first."""
    if group < 4:
        return packed[group] & 63, packed[group + 4] & 63
    last = packed[group + 4]
    return last & 15 | packed[group - 4] >> 6 << 4, last >> 4 | packed[group] >> 6 << 4


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(KNOWN)), st.integers(0, 2**32 - 1), st.integers(1, 2))
def test_values_are_those_of_another_decoder_bit_for_bit(dtype: str, seed: int, across: int) -> None:
    elements, size = BLOCKS[dtype]
    data = np.random.default_rng(seed).integers(0, 256, (2 * across, size), dtype=np.uint8)
    for place in (209,) if dtype == "Q6_K" else (1, 3):
        data[:, place] &= 0xBB  # finite numbers of half precision
    made = values(dtype, data, elements * across)
    wanted = np.array([one for block in data for one in decoded(dtype, block.tobytes())], np.float32)
    np.testing.assert_array_equal(made, wanted)


@pytest.mark.parametrize(("dtype", "bits"), [("Q4_0", 4.5), ("Q4_1", 5), ("Q4_K", 4.625), ("Q6_K", 8.5625)])
def test_what_a_weight_takes(dtype: str, bits: float) -> None:
    made = whole(dtype, np.repeat(block_of(dtype), 8, axis=0), BLOCKS[dtype][0] * 2)
    count = 8 * BLOCKS[dtype][0]
    assert sum(one.nbytes for one in made.arrays) == count * bits / 8
    assert made.form.bytes_of(4, count // 4) == count * bits / 8
