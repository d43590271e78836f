"""Attention as one function on GPUs that multiply matrices, beside the products and softmax it replaces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest
from tvm import relax

from host.lowering import lower
from host.lowering.attention.choice import MatrixExtents, is_faster_as_one
from host.model import LoweredModel
from host.schedules import space_for
from targets import GpuModel
from targets.nvidia import H100, ORIN_NANO, XAVIER_NX
from tests.unit.lowering.harness import functions, imported, normal, relax_module, run, run_lowered, weight
from tests.unit.schedules.cuda.cuda_cases import gpu_board

Tensor: TypeAlias = relax.Expr
LENGTH, HEADS, DEPTH = 21, 2, 16
WIDTH = HEADS * DEPTH


def _heads(builder: Any, value: Tensor) -> Tensor:
    parted = builder.emit(relax.op.reshape(value, (1, LENGTH, HEADS, DEPTH)))
    return builder.emit(relax.op.permute_dims(parted, [0, 2, 1, 3]))


def _layer(masked: Callable[[Any, Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    """Self-attention between dense layers, of an input and whatever masks it."""

    def build(builder: Any, data: Tensor, given: Tensor) -> Tensor:
        made = (builder.emit(relax.op.matmul(data, weight(WIDTH, WIDTH, seed=seed))) for seed in range(3))
        query, key, value = (_heads(builder, one) for one in made)
        turned = builder.emit(relax.op.permute_dims(key, [0, 1, 3, 2]))
        scale = relax.const(np.float32(DEPTH**0.5))
        scores = builder.emit(relax.op.divide(relax.op.matmul(query, turned), scale))
        weights = builder.emit(relax.op.nn.softmax(masked(builder, scores, given), axis=-1))
        mixed = builder.emit(relax.op.matmul(weights, value))
        back = builder.emit(relax.op.permute_dims(mixed, [0, 2, 1, 3]))
        joined = builder.emit(relax.op.reshape(back, (1, LENGTH, WIDTH)))
        return relax.op.tanh(relax.op.matmul(joined, weight(WIDTH, 24, seed=3)))

    return build


def _lowered(build: Any, given: np.ndarray, half: str = "float16", gpu: GpuModel = ORIN_NANO) -> LoweredModel:
    inputs = [normal(1, LENGTH, WIDTH), given]
    module = relax_module(build, inputs)
    model = lower(imported(module), gpu_board(gpu), half=half)
    [wanted], [found] = run(module, inputs), run_lowered(model, inputs)
    np.testing.assert_allclose(found, wanted, rtol=1e-2, atol=1e-2)
    return model


def _added(builder: Any, scores: Tensor, given: Tensor) -> Tensor:
    return relax.op.add(scores, given)


def _chosen(builder: Any, scores: Tensor, given: Tensor) -> Tensor:
    """What is seen is computed, as torch exports the mask of a text."""
    seen = builder.emit(relax.op.greater(given, relax.const(np.float32(0))))
    return relax.op.where(seen, scores, relax.const(np.float32(-1e9)))


def _causal(builder: Any, scores: Tensor, given: Tensor) -> Tensor:
    seen = np.tril(np.ones((1, 1, LENGTH, LENGTH), bool))
    return relax.op.where(relax.const(seen), scores, relax.const(np.float32(-np.inf)))


@pytest.mark.parametrize("masked", [_added, _chosen, _causal], ids=lambda one: one.__name__)
def test_attention_is_one_function(masked: Callable[[Any, Tensor, Tensor], Tensor]) -> None:
    model = _lowered(_layer(masked), normal(1, 1, 1, LENGTH))
    [task] = [task for task in model.tasks if "attention" in task.name]
    space = space_for(task, gpu_board().hardware)
    assert space.rule.name == "cuda_attention"
    assert ("attention_causal" in {stage.name for stage in space.workload.stages}) == (masked is _causal)
    assert not any("softmax" in name for name in functions(model))


@pytest.mark.parametrize(("half", "gpu"), [("", ORIN_NANO), ("float16", XAVIER_NX)])
def test_others_keep_three_functions(half: str, gpu: GpuModel) -> None:
    """Single precision has no products of matrices of halves, nor has Xavier the instruction."""
    model = _lowered(_layer(_added), normal(1, 1, 1, LENGTH), half, gpu)
    assert not any("attention" in name for name in functions(model))


def test_one_kernel_is_chosen_where_it_is_faster() -> None:
    assert is_faster_as_one(MatrixExtents(12, 128, 128, 64, 64), H100)
    assert is_faster_as_one(MatrixExtents(8, 1500, 1500, 64, 64), ORIN_NANO)
    # Heads of more elements than registers hold; one head and few rows of a very long text.
    assert not is_faster_as_one(MatrixExtents(12, 128, 128, 256, 256), H100)
    assert not is_faster_as_one(MatrixExtents(1, 16, 30_000, 64, 64), H100)
