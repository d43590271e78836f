"""Accuracy of the fp32 functions over their whole range."""

from __future__ import annotations

from collections.abc import Callable
from math import erf, erfc

import numpy as np
import pytest
import tvm
from tvm import te

from host.lowering.expressions import math

_ERF = np.vectorize(erf, otypes=[np.float64])
_ERFC = np.vectorize(erfc, otypes=[np.float64])


def evaluate(function: Callable, values: np.ndarray) -> np.ndarray:
    """`function` of every value, compiled for vectors."""
    lanes = 16
    padded = np.resize(values, (-(-values.size // lanes), lanes)).astype("float32")
    x = te.placeholder(padded.shape, "float32", name="x")
    y = te.compute(padded.shape, lambda i, j: function(x(i, j)), name="y")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([x, y]))
    schedule.vectorize(schedule.get_loops(schedule.get_sblock("y"))[1])
    kernel = tvm.compile(schedule.mod, target=tvm.target.Target({"kind": "llvm"}))
    result = tvm.runtime.tensor(np.empty_like(padded))
    kernel(tvm.runtime.tensor(padded), result)
    return result.numpy().reshape(-1)[: values.size]


def grid(low: float, high: float) -> np.ndarray:
    """Values over a range, and small ones of both signs where it holds zero."""
    values = np.linspace(low, high, 200_001)
    if low < 0 < high:
        small = np.logspace(-30, 0, 2000)
        values = np.concatenate([values, small, -small])
    return values[(values >= low) & (values <= high)].astype("float32")


def relative_error(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.max(np.abs(found.astype("float64") - wanted) / np.maximum(np.abs(wanted), 1e-37)))


@pytest.mark.parametrize(
    ("function", "exact", "low", "high", "bound"),
    [
        (math.exp, np.exp, -86.98, 88.7, 4e-7),
        (math.exp_of_nonpositive, np.exp, -87.3, 0.0, 4e-7),
        (math.tanh, np.tanh, -20.0, 20.0, 6e-7),
        (math.erf, _ERF, -10.0, 10.0, 6e-7),
        (math.erfc, _ERFC, -10.0, 9.1, 6e-7),
        (math.expm1, np.expm1, -86.98, 88.7, 8e-7),
        (math.log1p, np.log1p, -0.9999, 1e6, 6e-7),
        (math.sigmoid, lambda x: 1 / (1 + np.exp(-x)), -80.0, 80.0, 6e-7),
        (math.log, np.log, 1e-37, 1e-3, 4e-7),
        (math.log, np.log, 1.5, 1e38, 4e-7),
        (math.silu, lambda x: x / (1 + np.exp(-x)), -80.0, 80.0, 6e-7),
    ],
)
def test_relative_error(function: Callable, exact: Callable, low: float, high: float, bound: float) -> None:
    values = grid(low, high)
    values = values[values != 0] if low < 0 < high else values
    assert relative_error(evaluate(function, values), exact(values.astype("float64"))) < bound


@pytest.mark.parametrize("function", [math.tanh, math.erf])
def test_complements_to_one_are_never_negative(function: Callable) -> None:
    found = evaluate(function, grid(-12.0, 12.0))
    assert found.min() >= -1 and found.max() <= 1


@pytest.mark.parametrize("function", [math.gelu, math.gelu_tanh])
def test_far_below_zero_little_is_left(function: Callable) -> None:
    assert np.abs(evaluate(function, np.array([-12.0, -1e3, -1e6, -1e30], "float32"))).max() <= 1e-6


def test_complements_of_error_functions_at_the_ends() -> None:
    found = evaluate(math.erfc, np.array([np.nan, np.inf, -np.inf, 11.0, -11.0, 0.0]))
    np.testing.assert_array_equal(found, np.array([np.nan, 0, 2, 0, 2, found[5]], "float32"))
    assert found[5] == pytest.approx(1.0, rel=2e-7)


@pytest.mark.parametrize(("function", "exact"), [(math.expm1, np.expm1), (math.log1p, np.log1p)])
def test_functions_near_one_at_the_ends(function: Callable, exact: Callable) -> None:
    values = np.array([np.nan, np.inf, -np.inf, -1.0, 0.0, 100.0], "float32")
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(evaluate(function, values), exact(values), rtol=1e-6)


def test_log_is_accurate_around_one() -> None:
    values = np.linspace(0.5, 2.0, 200_001).astype("float32")
    found, wanted = evaluate(math.log, values), np.log(values.astype("float64"))
    assert np.max(np.abs(found - wanted)) < 2e-7
    assert evaluate(math.log, np.ones(1)).item() == 0.0


@pytest.mark.parametrize(
    ("function", "exact"),
    [
        (math.gelu, lambda x: 0.5 * x * (1 + _ERF(x / np.sqrt(2)))),
        (math.gelu_tanh, lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))),
    ],
)
def test_gelu(function: Callable, exact: Callable) -> None:
    values = grid(-100.0, 100.0)
    wanted = exact(values.astype("float64"))
    assert np.max(np.abs(evaluate(function, values) - wanted) / np.maximum(np.abs(values), 1e-30)) < 6e-7


def test_exp_beyond_its_range() -> None:
    values = np.array([-np.inf, -3.4e38, -200.0, -88.0, 0.0, 88.73, 200.0, 3.4e38, np.inf], dtype="float32")
    found = evaluate(math.exp, values)
    assert found[[0, 1, 2]].tolist() == [0.0, 0.0, 0.0]
    assert found[4] == 1.0
    assert np.isinf(found[5:]).all()


def test_exp_of_masked_scores_is_zero() -> None:
    values = np.array([-np.inf, -3.4028235e38, -1e9, -1e4, -88.0, 0.0], dtype="float32")
    assert evaluate(math.exp_of_nonpositive, values).tolist() == [0.0, 0.0, 0.0, 0.0, 0.0, 1.0]


@pytest.mark.parametrize("scale", [1.0, 0.125, 7.0])
def test_weights_of_differences(scale: float) -> None:
    def weight(x: math.Expression) -> math.Expression:
        return math.weight_below(x, math.number(0.0), scale)

    values = np.linspace(-87.3 / scale, 0, 200_001).astype("float32")
    found, wanted = evaluate(weight, values), np.exp(scale * values.astype("float64"))
    assert relative_error(found, wanted) < 1e-5
    # What counts beside a weight of 1.
    assert np.abs(found - wanted).max() < 1.5e-7
    masked = np.array([-np.inf, -3.4028235e38, -1e9, -1e4, -88.0 / scale, 0.0, np.nan], dtype="float32")
    np.testing.assert_array_equal(evaluate(weight, masked), [0, 0, 0, 0, 0, 1, np.nan])


@pytest.mark.parametrize("function", [math.exp, math.tanh, math.erf, math.sigmoid, math.gelu, math.log])
def test_not_a_number_stays_one(function: Callable) -> None:
    values = np.full(16, np.nan, dtype="float32")
    assert np.isnan(evaluate(function, values)).all()


def test_saturation_and_special_values() -> None:
    infinite = np.array([-np.inf, np.inf], dtype="float32")
    np.testing.assert_allclose(evaluate(math.tanh, infinite), [-1.0, 1.0], rtol=3e-7)
    np.testing.assert_allclose(evaluate(math.erf, infinite), [-1.0, 1.0], rtol=3e-7)
    assert evaluate(math.sigmoid, infinite).tolist() == [0.0, 1.0]
    found = evaluate(math.log, np.array([0.0, -1.0, np.inf], dtype="float32"))
    assert found[0] == -np.inf
    assert np.isnan(found[1])
    assert found[2] == np.inf
