"""Weights are copied once on the way from the imported model to the parameters of the library."""

from __future__ import annotations

import numpy as np

from host.lowering.builder import Builder
from host.lowering.graph import constant
from host.lowering.ops import known_operators


def test_a_large_weight_in_another_order_stays_a_view() -> None:
    weight = constant(np.arange(1 << 19, dtype="float32").reshape(512, 1024))
    moved = Builder(known_operators()).transpose(weight, [1, 0])
    assert weight.data is not None and moved.data is not None
    assert np.shares_memory(moved.data, weight.data)
    np.testing.assert_array_equal(moved.data, weight.data.T)


def test_a_small_constant_is_laid_out_in_order() -> None:
    weight = constant(np.arange(64, dtype="float32").reshape(8, 8))
    moved = Builder(known_operators()).transpose(weight, [1, 0])
    assert moved.data is not None and moved.data.flags.c_contiguous
