"""Products of one row and one column, whose weights are packed for vectors: the tile is one element."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tvm import te, tirx

from host.schedules import DesignSpace, scheduled_function, space_for
from tests.unit.schedules import functions as fn
from tests.unit.schedules.cpu import dot_cases as cases


def _program(space: DesignSpace, seed: int) -> tirx.PrimFunc:
    return scheduled_function(space.apply(space.candidate(space.sample(random.Random(seed)), "random")))


@pytest.mark.parametrize("seed", [0, 1])
def test_a_product_of_floats(seed: int) -> None:
    a, w = te.placeholder((1, 32), name="a"), te.placeholder((1, 32, 16), name="w")
    k = te.reduce_axis((0, 32), name="k")
    product = te.compute((1, 16), lambda i, j: te.sum(a[i, k] * w[0, k, j], axis=k), name="matmul")
    result = te.compute((1, 1), lambda i, j: product[i, j] + 1.0, name="epilogue")
    space = space_for(fn.task(te.create_prim_func([a, w, result])), fn.board().hardware, 1)
    assert space.rule.name == "tiled"
    generator = np.random.default_rng(0)
    given = [generator.standard_normal(shape).astype("float32") for shape in ((1, 32), (1, 32, 16))]
    found = fn.run(_program(space, seed), given, (1, 1), fn.board().tvm_target)
    np.testing.assert_allclose(found, given[0] @ given[1][0, :, :1] + 1.0, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_product_of_bytes(seed: int) -> None:
    board = cases.executable_here(cases.vnni_board())
    task = cases.dense_task(1, 1, 32, 16)
    space = space_for(task, board.hardware, 1)
    assert space.rule.name == "dot"
    generator = np.random.default_rng(0)
    a = generator.integers(0, 5, (1, 32)).astype("uint8")
    w = generator.integers(-1, 3, (1, 8, 16, 4)).astype("int8")
    found = fn.run(_program(space, seed), [a, w], (1, 1), board.tvm_target, "uint8")
    column = w[0, :, 0].reshape(32, 1).astype("int64")
    np.testing.assert_array_equal(found, a.astype("int64") @ column + 5)
