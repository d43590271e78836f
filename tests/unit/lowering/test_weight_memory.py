"""Weights are copied once on the way from the imported model to the parameters of the library."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from host.lowering.builder import Builder
from host.lowering.graph import constant
from host.lowering.ops import known_operators
from tests.unit.lowering.harness import lowered, normal, weight


def test_a_large_weight_in_another_order_stays_a_view() -> None:
    weight = constant(np.arange(1 << 19, dtype="float32").reshape(512, 1024))
    moved = Builder(known_operators()).transpose(weight, [1, 0])
    assert weight.data is not None and moved.data is not None
    assert np.shares_memory(moved.data, weight.data)
    np.testing.assert_array_equal(moved.data, weight.data.T)


def test_a_small_constant_is_laid_out_in_order() -> None:
    weight = constant(np.arange(64, dtype="float32").reshape(8, 8))
    moved = Builder(known_operators()).transpose(weight, [1, 0])
    assert moved.data is not None and moved.data.flags.c_contiguous


def test_a_task_knows_what_a_run_of_its_model_reads() -> None:
    """Of a table the rows that are taken, of a weight all of it, and that once."""

    def build(builder: Any, rows: Any) -> Any:
        taken = builder.emit(relax.op.take(relax.const(normal(5000, 16)), rows, axis=0))
        product = builder.emit(relax.op.matmul(taken, weight(16, 16)))
        return relax.op.matmul(relax.op.tanh(product), weight(16, 16))

    model = lowered(build, [np.zeros(3, "int32")])
    assert {task.model_weights_bytes for task in model.tasks} == {4 * (3 * 16 + 16 * 16)}
