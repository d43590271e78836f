"""Convolutions of volumes are computed as images by Winograd's algorithm where that pays."""

from __future__ import annotations

import pytest
from tvm import relax

from tests.unit.lowering.harness import check, functions, lowered, normal, weight

op = relax.op
BIAS = relax.const(normal(1, 64, 1, 1, 1, seed=5))


def volume(channels_in: int, **attributes: object):
    """A 3x3x3 convolution to 64 channels, a bias and tanh."""

    def build(bb, x):
        taps = weight(64, channels_in, 3, 3, 3)
        y = bb.emit(op.nn.conv3d(x, taps, **{"padding": 1, **attributes}))
        return op.tanh(bb.emit(op.add(y, BIAS)))

    return build


@pytest.mark.parametrize(
    ("batch", "depth", "padding"),
    [(1, 3, 1), (2, 4, 1), (1, 5, [0, 1, 1, 0, 1, 1]), (1, 6, [1, 0, 1, 0, 3, 0])],
)
def test_three_slices_are_the_channels_of_an_image(batch: int, depth: int, padding: object) -> None:
    inputs = [normal(batch, 48, depth, 8, 12)]
    model = check(volume(48, padding=padding), inputs, rtol=1e-4, atol=1e-4)
    # What follows element by element stays in the function of the convolution.
    assert any("winograd_conv_add_tanh" in name for name in functions(model))


@pytest.mark.parametrize("attributes", [{"strides": 2}, {"dilation": 2, "padding": 2}])
def test_what_winograd_does_not_compute_stays_a_volume(attributes: dict[str, object]) -> None:
    model = lowered(volume(48, **attributes), [normal(1, 48, 4, 8, 12)])
    assert any("packed_conv" in name for name in functions(model))


def test_slices_that_are_no_whole_vectors_are_not_copied() -> None:
    model = lowered(volume(24), [normal(1, 24, 4, 8, 12)])
    assert any("packed_conv" in name for name in functions(model))


def test_a_range_of_lengths_keeps_the_volume() -> None:
    model = lowered(volume(48), [normal(1, 48, 3, 8, 12)], any_length=True)
    assert not any("winograd" in name for name in functions(model))
