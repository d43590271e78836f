"""BatchNorm and other scales and shifts by constants."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from tests.unit.lowering.harness import check, functions, normal, weight

op = relax.op


def batch_norm(bb, x, channels: int, axis: int = 1):
    generator = np.random.default_rng(5)
    gamma, beta, mean = (relax.const(normal(channels, seed=s)) for s in (5, 6, 7))
    variance = relax.const(generator.uniform(0.5, 1.5, channels).astype("float32"))
    result = bb.emit(op.nn.batch_norm(x, gamma, beta, mean, variance, axis, 1e-3, training=False))
    return bb.emit(relax.TupleGetItem(result, 0))


def test_batch_norm_goes_into_the_weights() -> None:
    def build(bb, x):
        y = bb.emit(op.nn.conv2d(x, weight(12, 3, 3, 3)))
        y = bb.emit(op.add(y, op.reshape(weight(12), (1, 12, 1, 1))))
        return op.mean(bb.emit(op.nn.relu(batch_norm(bb, y, 12))), [2, 3])

    model = check(build, [normal(1, 3, 7, 7)])
    assert functions(model) == ["fused_transpose_packed_conv_add_relu", "fused_mean"]


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_batch_norm_of_every_convolution(groups: int) -> None:
    def build(bb, x):
        y = bb.emit(op.nn.conv2d(x, weight(8, 4 // groups, 3, 3), groups=groups))
        return batch_norm(bb, y, 8)

    model = check(build, [normal(1, 4, 6, 6)])
    assert not any("multiply" in name for name in functions(model))


@pytest.mark.parametrize("groups", [1, 2])
def test_batch_norm_of_transposed_convolutions(groups: int) -> None:
    def build(bb, x):
        y = bb.emit(
            op.nn.conv2d_transpose(x, weight(4, 3, 4, 4), strides=(2, 2), padding=(1, 1), groups=groups)
        )
        return batch_norm(bb, y, 3 * groups)

    model = check(build, [normal(1, 4, 5, 5)])
    assert not any("multiply" in name for name in functions(model))


def test_batch_norm_of_a_dense_layer() -> None:
    model = check(lambda bb, x: batch_norm(bb, bb.emit(op.matmul(x, weight(6, 9))), 9), [normal(4, 6)])
    assert functions(model) == ["fused_packed_dense_add"]


def test_batch_norm_that_follows_nothing_is_a_scale_and_a_shift() -> None:
    model = check(lambda bb, x: batch_norm(bb, x, 4), [normal(2, 4, 5, 5)])
    assert functions(model) == ["fused_multiply_add"]


def test_a_result_that_is_read_twice_is_not_scaled_in_place() -> None:
    def build(bb, x):
        y = bb.emit(op.matmul(x, weight(6, 9)))
        return op.add(bb.emit(op.multiply(y, weight(9))), y)

    check(build, [normal(4, 6)])


def test_a_result_that_is_returned_is_not_scaled_in_place() -> None:
    def build(bb, x):
        y = bb.emit(op.matmul(x, weight(6, 9)))
        return relax.Tuple([y, bb.emit(op.multiply(y, weight(9)))])

    check(build, [normal(4, 6)])


def test_shifts_add_up() -> None:
    def build(bb, x):
        y = bb.emit(op.add(bb.emit(op.matmul(x, weight(6, 9))), weight(9)))
        return op.add(weight(9, seed=4), bb.emit(op.add(y, weight(1, 9, seed=3))))

    assert functions(check(build, [normal(4, 6)])) == ["fused_packed_dense_add"]


def test_a_shared_weight_is_scaled_for_one_reader_only() -> None:
    shared = weight(6, 6)

    def build(bb, x):
        y = bb.emit(op.multiply(bb.emit(op.matmul(x, shared)), weight(6, seed=8)))
        return op.matmul(y, shared)

    check(build, [normal(4, 6)])
