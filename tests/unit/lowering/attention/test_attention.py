"""Attention as one function, beside the products and softmax that it replaces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest
from tvm import relax

from host.lowering import lower
from host.lowering.attention.function import AttentionShape
from host.model import LoweredModel
from tests.unit.lowering.harness import (
    board,
    check,
    functions,
    imported,
    lowered,
    normal,
    relax_module,
    run,
    run_lowered,
    weight,
)

Tensor: TypeAlias = relax.Expr
DEPTH = 12
# Numbers of rows and columns that tiles and vectors divide, and that they do not.
SIZES = [(32, 64), (37, 70), (17, 197)]


def _scores(query: Tensor, key: Tensor) -> Tensor:
    """Q K^T / sqrt(D), of (..., M, D) and (..., N, D)."""
    rank = len(key.ty.shape)
    turned = relax.op.permute_dims(key, [*range(rank - 2), rank - 1, rank - 2])
    return relax.op.divide(relax.op.matmul(query, turned), relax.const(np.float32(DEPTH**0.5)))


def _attention(query: Tensor, key: Tensor, value: Tensor, masked: Callable[[Tensor], Tensor]) -> Tensor:
    weights = relax.op.nn.softmax(masked(_scores(query, key)), axis=-1)
    return relax.op.matmul(weights, value)


def _unmasked(scores: Tensor) -> Tensor:
    return scores


def _is_one_function(model: LoweredModel) -> bool:
    return functions(model) == ["fused_attention"]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_attention_is_one_function(sizes: tuple[int, int]) -> None:
    rows, columns = sizes
    inputs = [normal(3, rows, DEPTH), normal(3, columns, DEPTH), normal(3, columns, 16)]
    model = check(lambda b, q, k, v: _attention(b.emit(q), b.emit(k), v, _unmasked), inputs)
    assert _is_one_function(model)


def _heads(builder: Any, value: Tensor, length: int) -> Tensor:
    """(1, S, 32) as (1, 2, S, 16)."""
    parted = builder.emit(relax.op.reshape(value, (1, length, 2, 16)))
    return builder.emit(relax.op.permute_dims(parted, [0, 2, 1, 3]))


def test_transposes_around_it_are_part_of_it() -> None:
    length = 72

    def build(builder: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        q, k, v = (_heads(builder, one, length) for one in (query, key, value))
        result = builder.emit(_attention(q, k, v, _unmasked))
        back = builder.emit(relax.op.permute_dims(result, [0, 2, 1, 3]))
        return relax.op.reshape(back, (1, length, 32))

    inputs = [normal(1, length, 32, seed=seed) for seed in range(3)]
    assert _is_one_function(check(build, inputs))


def test_heads_that_are_merged_into_one_dimension() -> None:
    """What torch makes of batched products: (1, H, S, D) as (H, S, D) for the products only."""
    length = 67

    def build(builder: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (
            relax.op.reshape(_heads(builder, one, length), (2, length, 16)) for one in (query, key, value)
        )
        scores = relax.op.reshape(_scores(q, builder.emit(k)), (1, 2, length, length))
        weights = relax.op.nn.softmax(relax.op.add(scores, mask), axis=-1)
        result = relax.op.matmul(relax.op.reshape(weights, (2, length, length)), v)
        back = relax.op.permute_dims(relax.op.reshape(result, (1, 2, length, 16)), [0, 2, 1, 3])
        return relax.op.reshape(back, (1, length, 32))

    inputs = [*(normal(1, length, 32, seed=seed) for seed in range(3)), normal(1, 1, length, length)]
    assert _is_one_function(check(build, inputs))


@pytest.mark.parametrize("shape", [(2, 3, 37, 70), (1, 3, 37, 70), (2, 1, 1, 70), (37, 70), (70,), (37, 1)])
@pytest.mark.parametrize("columns", [64, 70])
def test_masks_broadcast_as_additions_do(shape: tuple[int, ...], columns: int) -> None:
    shape = tuple(columns if size == 70 else size for size in shape)
    mask = np.where(normal(*shape, seed=9) > 0.8, np.float32(-1e9), normal(*shape))
    inputs = [normal(2, 3, 37, DEPTH), normal(2, 3, columns, DEPTH), normal(2, 3, columns, 8), mask]

    def build(builder: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        return _attention(query, builder.emit(key), value, lambda scores: relax.op.add(mask, scores))

    assert _is_one_function(check(build, inputs))


def test_two_masks() -> None:
    inputs = [normal(4, 3, 20, DEPTH), normal(4, 3, 66, DEPTH), normal(4, 3, 66, 8)]
    bias, mask = relax.const(normal(3, 20, 66)), relax.const(normal(4, 1, 20, 66))

    def build(builder: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return _attention(
            query, builder.emit(key), value, lambda scores: relax.op.add(relax.op.add(scores, bias), mask)
        )

    assert _is_one_function(check(build, inputs))


@pytest.mark.parametrize("shape", [(3, 1, 1), (1, 3, 1, 1), (4, 1, 1, 1)], ids=str)
def test_a_factor_of_each_head(shape: tuple[int, ...]) -> None:
    """Attention by the angles of queries and keys, as in Swin v2 and XCiT."""
    inputs = [normal(4, 3, 20, DEPTH), normal(4, 3, 66, DEPTH), normal(4, 3, 66, 8)]
    factor, bias = relax.const(normal(*shape)), relax.const(normal(3, 20, 66))

    def build(builder: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        def masked(scores: Tensor) -> Tensor:
            return relax.op.add(relax.op.multiply(scores, factor), bias)

        return _attention(query, builder.emit(key), value, masked)

    found = functions(check(build, inputs))
    assert "fused_attention" in found
    assert not any("softmax" in name for name in found)


def test_a_factor_behind_a_mask_stays() -> None:
    inputs = [normal(2, 3, 20, DEPTH), normal(2, 3, 66, DEPTH), normal(2, 3, 66, 8)]
    factor, bias = relax.const(normal(3, 1, 1)), relax.const(normal(3, 20, 66))

    def build(builder: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        def masked(scores: Tensor) -> Tensor:
            return relax.op.multiply(relax.op.add(scores, bias), factor)

        return _attention(query, builder.emit(key), value, masked)

    assert "fused_attention" not in functions(check(build, inputs))


def test_masks_of_windows_and_of_heads() -> None:
    """What shifted windows add: a bias of each head, and a mask of each window in another view."""
    inputs = [normal(4, 3, 64, DEPTH), normal(4, 3, 64, DEPTH), normal(4, 3, 64, 8)]
    bias, mask = relax.const(normal(1, 3, 64, 64)), relax.const(normal(1, 4, 1, 64, 64))

    def build(builder: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        def masked(scores: Tensor) -> Tensor:
            windows = relax.op.reshape(relax.op.add(scores, bias), (1, 4, 3, 64, 64))
            return relax.op.reshape(relax.op.add(windows, mask), (4, 3, 64, 64))

        return _attention(query, builder.emit(key), value, masked)

    assert _is_one_function(check(build, inputs))


@pytest.mark.parametrize("low", [-np.inf, -1e4, float(np.finfo("float32").min)])
def test_a_choice_by_a_constant_condition_is_a_mask(low: float) -> None:
    length = 68
    seen = np.tril(np.ones((1, 1, length, length), bool))
    inputs = [normal(1, 2, length, DEPTH), normal(1, 2, length, DEPTH), normal(1, 2, length, 16)]

    def build(builder: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        def masked(scores: Tensor) -> Tensor:
            return relax.op.where(relax.const(seen), scores, relax.const(np.float32(low)))

        return _attention(query, builder.emit(key), value, masked)

    assert _is_one_function(check(build, inputs))


def test_a_row_of_nothing_but_excluded_scores_stays_the_mean() -> None:
    """A choice of equal low numbers is no mask where a row has no other: what is left is their mean."""
    seen = np.ones((20, 66), bool)
    seen[3] = False
    inputs = [normal(20, DEPTH), normal(66, DEPTH), normal(66, 16)]

    def build(builder: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        def masked(scores: Tensor) -> Tensor:
            return relax.op.where(relax.const(seen), scores, relax.const(np.float32(-1e9)))

        return _attention(query, builder.emit(key), value, masked)

    assert not _is_one_function(check(build, inputs))


_LEAST = float(np.finfo("float32").min)


@pytest.mark.parametrize(
    ("order", "fill", "given"),
    [
        ("choice, sum", _LEAST, False),
        ("choice, sum", -2e4, True),
        ("sum, choice", _LEAST, False),
        ("sum, choice", _LEAST, True),
        ("sum, choice", -2e4, False),
        ("choice, choice", _LEAST, False),
        ("choice, choice", -np.inf, False),
    ],
)
def test_masks_that_exclude_a_row_together(order: str, fill: float, given: bool) -> None:
    """No mask excludes all of row 3: what is left of it is the mean of what is excluded least, or NaN."""
    generator = np.random.default_rng(0)
    seen, others = generator.random((2, 20, 66)) > 0.3
    # Columns that the one, the other or both exclude.
    seen[3], others[3] = np.arange(66) % 3 == 0, np.arange(66) % 3 == 1
    other = np.where(others, np.float32(0), np.float32(fill))
    inputs = [normal(20, DEPTH), normal(66, DEPTH), normal(66, 16), *([other] if given else [])]

    def build(builder: Any, query: Tensor, key: Tensor, value: Tensor, *masks: Tensor) -> Tensor:
        added = masks[0] if masks else relax.const(other)
        steps = {
            "choice": lambda scores, chosen: relax.op.where(
                relax.const(chosen), scores, relax.const(np.float32(fill))
            ),
            "sum": lambda scores, chosen: relax.op.add(scores, added),
        }

        def masked(scores: Tensor) -> Tensor:
            for step, chosen in zip(order.split(", "), (seen, others), strict=True):
                scores = builder.emit(steps[step](scores, chosen))
            return scores

        return _attention(query, builder.emit(key), value, masked)

    check(build, inputs, rtol=5e-3, atol=5e-3)


def test_weights_that_something_else_reads_stay_tensors() -> None:
    inputs = [normal(2, 20, DEPTH), normal(2, 66, DEPTH), normal(2, 66, 16)]

    def build(builder: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        weights = builder.emit(relax.op.nn.softmax(_scores(query, builder.emit(key)), axis=-1))
        return relax.Tuple([builder.emit(relax.op.matmul(weights, value)), weights])

    assert "fused_attention" not in functions(check(build, inputs))


def test_one_key_for_all_heads() -> None:
    inputs = [normal(4, 20, DEPTH), normal(1, 66, DEPTH), normal(1, 66, 16)]
    model = check(lambda b, q, k, v: _attention(q, b.emit(k), v, _unmasked), inputs)
    assert _is_one_function(model)


@pytest.mark.parametrize(
    ("rows", "columns", "any_length"), [(1, 70, False), (8, 70, False), (49, 49, False), (32, 70, True)]
)
def test_few_rows_or_columns_and_ranges_are_left_alone(rows: int, columns: int, any_length: bool) -> None:
    inputs = [normal(2, rows, DEPTH), normal(2, columns, DEPTH), normal(2, columns, 16)]
    model = lowered(lambda b, q, k, v: _attention(q, b.emit(k), v, _unmasked), inputs, any_length=any_length)
    assert "fused_attention" not in functions(model)


def test_models_in_half_precision_keep_its_tensors_in_single() -> None:
    """Its function is written for single precision, whatever lies around it in memory."""
    length = 70

    def build(builder: Any, data: Tensor) -> Tensor:
        q, k, v = (
            builder.emit(relax.op.tanh(relax.op.matmul(data, weight(32, 64, seed=seed)))) for seed in range(3)
        )
        result = builder.emit(_attention(q, k, v, _unmasked))
        return relax.op.tanh(relax.op.matmul(result, weight(64, 24, seed=3)))

    inputs = [normal(length, 32)]
    module = relax_module(build, inputs)
    model = lower(imported(module), board(), half="float16")
    assert "fused_attention" in functions(model)
    [wanted], [found] = run(module, inputs), run_lowered(model, inputs)
    np.testing.assert_allclose(found, wanted, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("rows", [16, 49, 50, 77, 197, 257, 577, 1500])
def test_rows_are_filled_up_to_what_tiles_divide(rows: int) -> None:
    shape = AttentionShape.of((), rows, 64, 64, 64, 8)
    assert shape is not None
    assert rows <= shape.filled_rows <= 1.1 * rows
    assert any(shape.filled_rows % height == 0 for height in (4, 5, 6, 7, 8))


def test_scales_of_queries_and_keys_are_those_of_their_products() -> None:
    """As torch writes `scaled_dot_product_attention`: both are multiplied by the root of the scale."""

    def build(builder: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        root = relax.const(np.float32(0.6))
        q, k, v = (_heads(builder, one, 72) for one in (query, key, value))
        turned = builder.emit(relax.op.permute_dims(k, [0, 1, 3, 2]))
        product = relax.op.matmul(builder.emit(relax.op.multiply(q, root)), relax.op.multiply(turned, root))
        return relax.op.matmul(relax.op.nn.softmax(builder.emit(product), axis=-1), v)

    inputs = [normal(1, 72, 32, seed=seed) for seed in range(3)]
    assert _is_one_function(check(build, inputs))
