"""Convolutions of what is computed from several tensors: where it is computed, and how often."""

from __future__ import annotations

import numpy as np
import pytest

from host.gensor import Gensor
from host.model import DeviceProfile
from host.schedules import DesignSpace, scheduled_function, space_for
from host.schedules.cpu.tiled.padding import recomputed_seconds
from host.schedules.cpu.tiled.roles import PAD_COPY, PAD_PEEL, roles_of
from tests.unit.schedules import functions as fn

TILE = {
    "rows": 7,
    "rows2": 2,
    "panel": 1,
    "block": 1,
    "block2": 1,
    "unroll": 1,
    "window": 0,
    "vectors": 1,
    "fetch": 0,
    "pad": PAD_PEEL,
}
SIZE, CHANNELS = 14, 64


def _space(images: int) -> DesignSpace:
    function = fn.convolution(SIZE, CHANNELS, CHANNELS, 3, 1, images=images)
    return space_for(fn.task(function, "convolution"), fn.board().hardware, 1)


def _recomputed_cycles(images: int, **changed: int) -> float:
    space, hardware = _space(images), fn.board().hardware
    roles = roles_of(space.workload.anchor_stage, hardware)
    assert roles is not None
    values = TILE | changed
    assert space.legal(values)
    return recomputed_seconds(space.workload, roles, hardware, values) * hardware.frequency_hz


def test_sums_are_computed_again_for_every_tap_and_every_panel() -> None:
    hardware = fn.board().hardware
    reads = SIZE * SIZE * 9 * CHANNELS
    # One addition for two images, and one operation that spreads the sum to a vector.
    assert _recomputed_cycles(2) == pytest.approx(4 * reads * 2 / hardware.fma_per_cycle)
    assert _recomputed_cycles(2, vectors=2) == pytest.approx(2 * reads * 2 / hardware.fma_per_cycle)
    assert _recomputed_cycles(3, vectors=2) == pytest.approx(2 * reads * 3 / hardware.fma_per_cycle)


def test_copies_are_computed_once_and_stored_elements_are_not_computed() -> None:
    assert _recomputed_cycles(2, pad=PAD_COPY) == 0
    assert _recomputed_cycles(1) == 0


def test_borders_are_peeled_where_elements_are_stored_and_not_where_they_are_computed() -> None:
    board = fn.board()

    def slower(images: int) -> float:
        space = _space(images)
        return space.estimate_s(TILE) / space.estimate_s(TILE | {"pad": PAD_COPY})

    assert slower(1) < 1.1
    assert slower(2) > 2
    profile = DeviceProfile("test", board, board.hardware, 1)
    [chosen] = Gensor().propose(_space(2), profile, [], 1, seed=0)
    assert chosen.value("pad") == PAD_COPY


@pytest.mark.parametrize("pad", [PAD_COPY, PAD_PEEL])
def test_the_convolution_of_a_sum_is_right(pad: int) -> None:
    space = _space(2)
    function = scheduled_function(space.apply(space.candidate(TILE | {"pad": pad}, "test")))
    generator = np.random.default_rng(0)
    images = [generator.standard_normal((1, SIZE, SIZE, CHANNELS)).astype("float32") for _ in range(2)]
    weights = generator.standard_normal((CHANNELS // 16, 3, 3, CHANNELS, 16)).astype("float32")
    bias = generator.standard_normal(CHANNELS).astype("float32")
    arguments = [*images, weights, bias]
    found = fn.run(function, arguments, (1, SIZE, SIZE, CHANNELS), fn.board().tvm_target)
    expected = fn.convolution_numpy(images[0] + images[1], weights, bias, 1)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
