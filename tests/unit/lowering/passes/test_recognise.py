"""Activations and normalisations written out as exporters write them."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from tvm import relax

from tests.unit.lowering.harness import check, functions, normal

op = relax.op


def const(value: float):
    return relax.const(np.float32(value))


def gelu_onnx(bb, x):
    gate = op.add(bb.emit(op.erf(bb.emit(op.divide(x, const(sqrt(2)))))), const(1))
    return op.multiply(bb.emit(op.multiply(x, bb.emit(gate))), const(0.5))


def gelu_half_first(bb, x):
    gate = op.add(const(1), bb.emit(op.erf(bb.emit(op.multiply(x, const(sqrt(0.5)))))))
    return op.multiply(bb.emit(op.multiply(const(0.5), x)), bb.emit(gate))


def gelu_tanh_cube(bb, x):
    cube = bb.emit(op.power(x, const(3.0)))
    inner = bb.emit(op.add(x, bb.emit(op.multiply(const(0.044715), cube))))
    gate = op.tanh(bb.emit(op.multiply(inner, const(sqrt(2 / np.pi)))))
    gate = op.add(const(1), bb.emit(gate))
    return op.multiply(bb.emit(op.multiply(x, const(0.5))), bb.emit(gate))


def gelu_tanh_factored(bb, x):
    square = bb.emit(op.multiply(x, x))
    inner = bb.emit(op.add(bb.emit(op.multiply(square, const(0.044715))), const(1)))
    inner = bb.emit(op.multiply(bb.emit(op.multiply(x, const(0.7978845608))), inner))
    gate = bb.emit(op.add(bb.emit(op.tanh(inner)), const(1)))
    return op.multiply(bb.emit(op.multiply(const(0.5), x)), gate)


def gelu_gate_halved(bb, x):
    inner = bb.emit(op.erf(bb.emit(op.multiply(x, const(sqrt(0.5))))))
    return op.multiply(x, bb.emit(op.add(const(0.5), bb.emit(op.multiply(inner, const(0.5))))))


def silu(bb, x):
    return op.multiply(bb.emit(op.sigmoid(x)), x)


def silu_quotient(bb, x):
    return op.divide(x, bb.emit(op.add(const(1), bb.emit(op.exp(bb.emit(op.negative(x)))))))


def sigmoid_quotient(bb, x):
    return op.divide(const(1), bb.emit(op.add(bb.emit(op.exp(bb.emit(op.negative(x)))), const(1))))


def hard_swish(bb, x):
    gate = bb.emit(op.clip(bb.emit(op.add(x, const(3))), 0, 6))
    return op.divide(bb.emit(op.multiply(x, gate)), const(6))


def hard_swish_scaled(bb, x):
    inner = bb.emit(op.add(bb.emit(op.multiply(x, const(1 / 6))), const(0.5)))
    return op.multiply(x, bb.emit(op.clip(inner, 0, 1)))


def relu6(bb, x):
    return op.minimum(bb.emit(op.maximum(x, const(0))), const(6))


def layer_norm(bb, x):
    d = bb.emit(op.subtract(x, bb.emit(op.mean(x, [-1], True))))
    variance = bb.emit(op.mean(bb.emit(op.power(d, const(2))), [-1], True))
    return op.divide(d, bb.emit(op.sqrt(bb.emit(op.add(variance, const(1e-5))))))


def layer_norm_rsqrt(bb, x):
    d = bb.emit(op.subtract(x, bb.emit(op.mean(x, [-1], True))))
    variance = bb.emit(op.variance(x, [-1], True))
    return op.multiply(bb.emit(op.rsqrt(bb.emit(op.add(const(1e-5), variance)))), d)


def layer_norm_as_batch_norm(bb, x):
    """Rows as channels of a BatchNorm: litert-torch writes layer norm so."""
    rows, columns = (int(d) for d in list(x.ty.shape)[-2:])
    image = bb.emit(op.reshape(x, (1, 3 * rows, columns)))

    def wide(v):
        return bb.emit(op.reshape(v, (1, 3 * rows, 1)))

    mean = bb.emit(op.mean(image, [0, 2]))
    d = bb.emit(op.subtract(image, wide(mean)))
    variance = bb.emit(op.mean(bb.emit(op.multiply(d, d)), [0, 2]))
    scale = bb.emit(op.rsqrt(bb.emit(op.add(variance, const(1e-6)))))
    shift = bb.emit(op.subtract(const(0), bb.emit(op.multiply(scale, mean))))
    result = bb.emit(op.add(bb.emit(op.multiply(image, wide(scale))), wide(shift)))
    return op.reshape(result, [int(d) for d in x.ty.shape])


def rms_norm(bb, x):
    square = bb.emit(op.mean(bb.emit(op.multiply(x, x)), [-1], True))
    return op.multiply(x, bb.emit(op.rsqrt(bb.emit(op.add(square, const(1e-6))))))


def softmax(bb, x):
    shifted = bb.emit(op.subtract(x, bb.emit(op.max(x, [-1], True))))
    powers = bb.emit(op.exp(shifted))
    return op.divide(powers, bb.emit(op.sum(powers, [-1], True)))


@pytest.mark.parametrize(
    ("build", "name"),
    [
        (gelu_onnx, "gelu"),
        (gelu_half_first, "gelu"),
        (gelu_gate_halved, "gelu"),
        (gelu_tanh_cube, "gelu_tanh"),
        (gelu_tanh_factored, "gelu_tanh"),
        (silu, "silu"),
        (silu_quotient, "silu"),
        (sigmoid_quotient, "sigmoid"),
        (hard_swish, "hard_swish"),
        (hard_swish_scaled, "hard_swish"),
        (relu6, "clip"),
        (layer_norm, "layer_norm"),
        (layer_norm_rsqrt, "layer_norm"),
        (layer_norm_as_batch_norm, "layer_norm"),
        (rms_norm, "rms_norm"),
        (softmax, "softmax"),
    ],
)
def test_written_out(build, name: str) -> None:
    model = check(build, [4 * normal(3, 5, 17)])
    assert functions(model) == [f"fused_{name}"]


def test_almost_a_gelu_is_left_alone() -> None:
    def build(bb, x):
        gate = op.add(bb.emit(op.erf(bb.emit(op.multiply(x, const(0.8))))), const(1))
        return op.multiply(x, bb.emit(gate))

    assert "gelu" not in functions(check(build, [normal(3, 5)]))[0]


def test_a_gate_of_another_tensor_is_left_alone() -> None:
    model = check(
        lambda bb, x, y: op.multiply(bb.emit(op.sigmoid(x)), y), [normal(4, 5), normal(4, 5, seed=1)]
    )
    assert functions(model) == ["fused_sigmoid_multiply"]


def test_bounds_of_bounds_are_one_bound() -> None:
    def build(bb, x):
        return op.clip(bb.emit(op.nn.relu(bb.emit(op.clip(x, -1.0, 2.0)))), 0.5, 6.0)

    assert functions(check(build, [3 * normal(4, 50)])) == ["fused_clip"]


def test_a_bound_that_is_a_tensor_stays_a_maximum() -> None:
    model = check(lambda bb, x, y: op.maximum(x, y), [normal(3, 4), normal(4)])
    assert functions(model) == ["fused_maximum"]
