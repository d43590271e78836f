"""Blocks of GGML's types have the values that GGML gives them."""

from __future__ import annotations

import numpy as np
import pytest

from host.importers.decoders.gguf.blocks import WHOLE, values, whole
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


def test_every_type_of_blocks_is_known() -> None:
    assert set(KNOWN) == {dtype for dtype, (elements, _) in BLOCKS.items() if elements > 1}


@pytest.mark.parametrize("dtype", KNOWN)
def test_values_are_those_of_ggml(dtype: str) -> None:
    found = values(dtype, block_of(dtype)).astype(np.float64)
    size = len(found)
    assert size == BLOCKS[dtype][0]
    weighted = (found * (np.arange(size) % 17 + 1)).sum()
    made = (found[1], found[size // 2 + 1], found[-1], found.sum(), weighted)
    assert made == pytest.approx(KNOWN[dtype], rel=1e-9)


@pytest.mark.parametrize("dtype", WHOLE)
def test_whole_numbers_are_kept_bit_for_bit(dtype: str) -> None:
    data = np.random.default_rng(0).integers(0, 256, (40, BLOCKS[dtype][1]), dtype=np.uint8)
    data[:, 1] &= 0x3F  # finite scales
    for bits in {8, WHOLE[dtype]}:
        made = whole(dtype, data, 64, bits)
        assert made.weight.shape == (20, 64 * bits // 8) and made.scales.shape == (20, 2)
        assert made.scales.tobytes() == data[:, :2].tobytes()
        np.testing.assert_array_equal(dequantise(made).reshape(-1), values(dtype, data))
