"""Half precision is computed in single precision."""

from __future__ import annotations

import numpy as np
from tvm import relax

from tests.unit.lowering.harness import blocks, lowered, normal, run_lowered

op = relax.op


def half(*shape: int, seed: int = 0) -> relax.Expr:
    return relax.const(normal(*shape, seed=seed).astype("float16"))


def test_sums_of_half_numbers_are_exact_to_the_last_bit_of_the_output() -> None:
    x, w = normal(4, 512).astype("float16"), np.ones((512, 16), "float16")
    model = lowered(lambda bb, v: op.matmul(v, relax.const(w)), [x])
    (found,) = run_lowered(model, [x])
    assert found.dtype == np.float16
    exact = x.astype("float64") @ w.astype("float64")
    np.testing.assert_array_equal(found, exact.astype("float16"))
    assert {array.dtype.name for array in model.parameters} == {"float32"}


def test_casts_into_half_and_operators_left_to_tvm_keep_their_meaning() -> None:
    x = normal(3, 8)

    def build(bb, v):
        narrow = bb.emit(op.astype(v, "float16"))
        ordered = bb.emit(op.sort(narrow, axis=-1))
        return op.astype(bb.emit(op.multiply(ordered, half(8))), "float32")

    model = lowered(build, [x])
    (found,) = run_lowered(model, [x])
    wanted = np.sort(x.astype("float16"), -1).astype("float32") * normal(8, seed=0).astype("float16")
    np.testing.assert_allclose(found, wanted, rtol=2e-3)


def test_outputs_that_are_inputs_and_truth_values() -> None:
    x = normal(2, 5).astype("float16")

    def build(bb, v):
        return relax.Tuple([v, bb.emit(op.greater(v, relax.const(np.float16(0)))), bb.emit(op.nn.relu(v))])

    model = lowered(build, [x])
    same, positive, rest = run_lowered(model, [x])
    np.testing.assert_array_equal(same, x)
    np.testing.assert_array_equal(positive, x > 0)
    np.testing.assert_array_equal(rest, np.maximum(x, 0))
    assert rest.dtype == np.float16
    assert blocks(model)


def test_signs_infinities_and_orders_are_those_of_rounded_numbers() -> None:
    x = np.array([[1e-9, -1e-9, 7e4, 1.0001, 1.0002, 1.0003, 0.5, -7e4]], "float32")

    def build(bb, v):
        rounded = bb.emit(op.astype(v, "float16"))
        order = bb.emit(op.argsort(rounded, axis=-1, dtype="int32"))
        signs = bb.emit(op.astype(bb.emit(op.sign(rounded)), "float32"))
        first = bb.emit(op.topk(rounded, k=3, ret_type="indices", dtype="int32"))
        infinite = [bb.emit(op.isinf(rounded)), bb.emit(op.isfinite(rounded))]
        return relax.Tuple([order, signs, first, *infinite])

    order, signs, first, infinite, finite = run_lowered(lowered(build, [x]), [x])
    np.testing.assert_array_equal(order, [[7, 0, 1, 6, 3, 4, 5, 2]])
    np.testing.assert_array_equal(signs, [[0, 0, 1, 1, 1, 1, 1, -1]])
    np.testing.assert_array_equal(first, [[2, 3, 4]])
    np.testing.assert_array_equal(infinite, np.abs(x) > 65504)
    np.testing.assert_array_equal(finite, np.abs(x) <= 65504)
