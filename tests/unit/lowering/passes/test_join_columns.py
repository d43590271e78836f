"""Convolutions with few output channels fill the lanes of a vector with neighbouring columns."""

from __future__ import annotations

import pytest
from tvm import relax

from tests.unit.lowering.harness import check, functions, normal, weight

op = relax.op


def weights(model) -> list[tuple[int, ...]]:
    """Shapes of the parameters with more than one dimension."""
    return [tuple(array.shape) for array in model.parameters if array.ndim > 1]


@pytest.mark.parametrize(
    ("channels", "kernel", "padding", "width", "columns"),
    [
        (3, 3, 1, 24, 4),
        (3, 9, 4, 25, 5),
        (1, 7, 3, 24, 12),
        (2, 5, [2, 1, 0, 3], 15, 5),
        # No divisor of the width gains enough, and what strides has no columns in common.
        (3, 3, 1, 22, 1),
        (8, 3, 1, 24, 1),
        (3, 1, 0, 24, 1),
    ],
)
def test_columns_are_joined_where_that_fills_vectors(
    channels: int, kernel: int, padding: int | list[int], width: int, columns: int
) -> None:
    bias = relax.const(normal(1, channels, 1, 1, seed=5))

    def build(bb, x):
        y = bb.emit(op.nn.conv2d(x, weight(channels, 4, kernel, kernel), padding=padding))
        return op.tanh(bb.emit(op.add(y, bias)))

    for batch in (1, 2):
        model = check(build, [normal(batch, 4, 9, width)])
        # What follows element by element stays in the function of the convolution.
        assert functions(model)[0].endswith("_add_tanh") or columns == 1
        packed = (1, kernel, kernel + columns - 1, 4, 16)
        assert (packed in weights(model)) == (columns > 1)


def test_strides_and_several_readers_are_kept() -> None:
    def build(bb, x):
        strided = bb.emit(op.nn.conv2d(x, weight(1, 4, 3, 3), padding=1, strides=2))
        y = bb.emit(op.nn.conv2d(x, weight(1, 4, 3, 3, seed=2), padding=1))
        gate = bb.emit(op.sigmoid(y))
        scaled = bb.emit(op.multiply(x, gate))
        return relax.Tuple([strided, op.add(y, gate), scaled])

    check(build, [normal(1, 4, 8, 16)])
