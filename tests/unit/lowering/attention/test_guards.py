"""Guards that make rows zero whose scores are all minus infinity, as torch writes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest
from tvm import relax

from host.model import LoweredModel
from tests.unit.lowering.harness import functions, lowered, normal, run_lowered

Tensor: TypeAlias = relax.Expr
Guard: TypeAlias = Callable[[Any, Tensor, Tensor], Tensor]
op = relax.op
ROWS, COLUMNS, DEPTH = 17, 70, 12
INPUTS = [normal(2, ROWS, DEPTH), normal(2, COLUMNS, DEPTH), normal(2, COLUMNS, 16)]


def _no_score_is_finite(builder: Any, scores: Tensor, weights: Tensor) -> Tensor:
    """The decomposition of `_safe_softmax` in exported programs."""
    lowest = builder.emit(op.equal(scores, relax.const(np.float32(-np.inf))))
    kept = builder.emit(op.astype(builder.emit(op.logical_not(lowest)), "int8"))
    some = builder.emit(op.astype(builder.emit(op.max(kept, axis=-1, keepdims=True)), "bool"))
    return builder.emit(op.logical_not(some))


def _all_scores_are_lowest(builder: Any, scores: Tensor, weights: Tensor) -> Tensor:
    lowest = builder.emit(op.astype(builder.emit(op.equal(scores, relax.const(np.float32(-np.inf)))), "int8"))
    return builder.emit(op.astype(builder.emit(op.min(lowest, axis=-1, keepdims=True)), "bool"))


def _weights_are_nan(builder: Any, scores: Tensor, weights: Tensor) -> Tensor:
    """How torch's ONNX exporter writes it."""
    return builder.emit(op.isnan(weights))


def _some_score_is_lowest(builder: Any, scores: Tensor, weights: Tensor) -> Tensor:
    """Not a guard: rows with one excluded column are zeros."""
    lowest = builder.emit(op.astype(builder.emit(op.equal(scores, relax.const(np.float32(-np.inf)))), "int8"))
    return builder.emit(op.astype(builder.emit(op.max(lowest, axis=-1, keepdims=True)), "bool"))


GUARDS = [_no_score_is_finite, _all_scores_are_lowest, _weights_are_nan]


def _lowered(inputs: list[np.ndarray], guard: Guard, masked: Callable[[Any, Tensor, Any], Tensor]) -> Any:
    def build(builder: Any, query: Tensor, key: Tensor, value: Tensor, *masks: Tensor) -> Tensor:
        turned = builder.emit(op.permute_dims(key, [0, 2, 1]))
        product = builder.emit(op.matmul(query, turned))
        scores = masked(builder, builder.emit(op.multiply(product, relax.const(np.float32(0.3)))), masks)
        weights = builder.emit(op.nn.softmax(scores, axis=-1))
        condition = guard(builder, scores, weights)
        zeros = relax.const(np.zeros((), "float32"))
        return op.matmul(builder.emit(op.where(condition, zeros, weights)), value)

    return lowered(build, inputs)


def _unmasked(builder: Any, scores: Tensor, masks: Any) -> Tensor:
    return scores


def _added(builder: Any, scores: Tensor, masks: Any) -> Tensor:
    return builder.emit(op.add(scores, masks[0]))


def _chosen(builder: Any, scores: Tensor, masks: Any) -> Tensor:
    return builder.emit(op.where(masks[0], scores, relax.const(np.float32(-np.inf))))


def _constant(mask: np.ndarray) -> Callable[[Any, Tensor, Any], Tensor]:
    return lambda builder, scores, masks: builder.emit(op.add(scores, relax.const(mask)))


def _kept(*empty: int) -> np.ndarray:
    """Which columns each row keeps: half of them, and none in the rows `empty`."""
    kept = np.random.default_rng(5).random((ROWS, COLUMNS)) < 0.5
    kept[list(empty)] = False
    return kept


def _as_numbers(kept: np.ndarray) -> np.ndarray:
    return np.where(kept, 0, -np.inf).astype("float32")


def _check(model: LoweredModel, inputs: list[np.ndarray], kept: np.ndarray) -> None:
    """Compare with attention over the columns that a row keeps, which is zero if there are none."""
    (found,) = run_lowered(model, inputs)
    query, key, value = (one.astype("float64") for one in INPUTS)
    powers = np.exp(0.3 * query @ key.transpose(0, 2, 1)) * kept
    totals = powers.sum(axis=-1, keepdims=True)
    wanted = np.divide(powers, totals, out=np.zeros_like(powers), where=totals > 0) @ value
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("guard", GUARDS)
def test_a_guard_of_finite_scores_is_removed(guard: Guard) -> None:
    model = _lowered(INPUTS, guard, _unmasked)
    assert functions(model) == ["fused_attention"]
    _check(model, INPUTS, np.ones((ROWS, COLUMNS), bool))


@pytest.mark.parametrize("guard", GUARDS)
def test_a_guard_is_removed_if_a_constant_mask_keeps_a_score_of_each_row(guard: Guard) -> None:
    kept = _kept()
    model = _lowered(INPUTS, guard, _constant(_as_numbers(kept)))
    assert functions(model) == ["fused_attention"]
    _check(model, INPUTS, kept)


@pytest.mark.parametrize("guard", GUARDS)
def test_rows_that_a_constant_mask_excludes_are_zeros(guard: Guard) -> None:
    kept = _kept(3, 16)
    model = _lowered(INPUTS, guard, _constant(_as_numbers(kept)))
    assert "fused_attention" in functions(model)
    _check(model, INPUTS, kept)


@pytest.mark.parametrize("guard", GUARDS)
@pytest.mark.parametrize("shape", [(ROWS, COLUMNS), (1, ROWS, COLUMNS)], ids=str)
def test_rows_that_an_input_excludes_are_zeros(guard: Guard, shape: tuple[int, ...]) -> None:
    kept = _kept(0, 5)
    inputs = [*INPUTS, _as_numbers(kept).reshape(shape)]
    model = _lowered(inputs, guard, _added)
    assert "fused_attention" in functions(model)
    _check(model, inputs, kept)


@pytest.mark.parametrize("guard", GUARDS)
def test_rows_that_a_choice_by_an_input_excludes_are_zeros(guard: Guard) -> None:
    kept = _kept(0, 5)
    inputs = [*INPUTS, np.broadcast_to(kept, (2, ROWS, COLUMNS)).copy()]
    _check(_lowered(inputs, guard, _chosen), inputs, kept)


def test_a_lowest_finite_number_masks_no_row() -> None:
    kept = _kept(4)
    numbers = np.where(kept, 0, np.finfo("float32").min).astype("float32")
    inputs = [*INPUTS, numbers]
    model = _lowered(inputs, _no_score_is_finite, _added)
    kept[4] = True  # all scores are the lowest number after rounding: the row is the mean of the values
    (found,) = run_lowered(model, inputs)
    np.testing.assert_allclose(found[:, 4], INPUTS[2].mean(axis=1), rtol=1e-4, atol=1e-5)


def test_zeros_in_rows_with_one_excluded_column_stay() -> None:
    kept = np.ones((ROWS, COLUMNS), bool)
    kept[2, 7] = False
    model = _lowered(INPUTS, _some_score_is_lowest, _constant(_as_numbers(kept)))
    kept[2] = False
    _check(model, INPUTS, kept)
