"""A last vector that is not full is written in shorter ones, which are all there or missing."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import te, tirx

from host.build.kernel import lower_function
from host.schedules import DesignSpace, scheduled_function, space_for
from host.tensor_ir.shared_conditions import with_shared_conditions
from tests.unit.schedules import functions as fn

BOARD = fn.board(cores=2)
ROWS, DEPTH, LANES = 28, 24, 16


def _dense(columns: int) -> tirx.PrimFunc:
    """A product with weights of whole vectors, of whose columns some are left out."""
    vectors = -(-columns // LANES)
    a = te.placeholder((ROWS, DEPTH), name="A")
    w = te.placeholder((vectors, DEPTH, LANES), name="W")
    r = te.placeholder((ROWS, columns), name="R")
    k = te.reduce_axis((0, DEPTH), name="k")
    made = te.compute(
        (ROWS, vectors * LANES),
        lambda i, j: te.sum(a[i, k] * w[j // LANES, k, j % LANES], axis=k),
        name="matmul",
    )
    return te.create_prim_func([a, w, r, te.compute((ROWS, columns), lambda i, j: made[i, j] + r[i, j])])


def _program(columns: int, threads: int, **changes: int) -> tuple[DesignSpace, tirx.PrimFunc]:
    space = space_for(fn.task(_dense(columns)), BOARD.hardware, threads)
    values = {"vectors": 1, "rows": 7, "rows2": 1, "panel": 1, "block": 2, "block2": 1, "unroll": 1}
    values |= {"window": 0, "pad": 0, "fetch": 0, **changes}
    if threads > 1:
        values["parallel"] = threads
    return space, scheduled_function(space.apply(space.candidate(values, "test")))


def _conditions_on_elements(function: tirx.PrimFunc) -> int:
    """Loops over single elements, each with a condition."""
    lowered = lower_function(function, "kernel", tvm.target.Target(BOARD.tvm_target))
    found = 0

    def note(loop: tirx.For) -> None:
        nonlocal found
        found += isinstance(loop.body, tirx.IfThenElse) and int(loop.extent) == LANES

    for body in lowered.functions.values():
        tvm_ffi.structural_walk(body.body, (tirx.For, note))
    return found


@pytest.mark.parametrize("columns, conditional", [(40, False), (44, False), (48, False), (41, True)])
@pytest.mark.parametrize("threads", [1, 2])
def test_conditions_are_of_whole_vectors_where_one_divides_the_columns(
    columns: int, conditional: bool, threads: int
) -> None:
    _, function = _program(columns, threads)
    assert (_conditions_on_elements(function) > 0) == conditional


@pytest.mark.parametrize("columns", [40, 44, 41])
@pytest.mark.parametrize("vectors", [1, 3])
def test_what_is_computed_stays(columns: int, vectors: int) -> None:
    space, function = _program(columns, 2, vectors=vectors)
    generator = np.random.default_rng(columns)
    shapes = [tuple(int(size) for size in one.shape) for one in space.task.function.params]
    given = [generator.standard_normal(shape).astype("float32") for shape in shapes[:-1]]
    found = fn.run(with_shared_conditions(function), given, shapes[-1], BOARD.tvm_target)
    weights = given[1].transpose(1, 0, 2).reshape(DEPTH, -1)[:, :columns]
    np.testing.assert_allclose(found, given[0] @ weights + given[2], rtol=1e-4, atol=1e-4)


def test_loops_that_are_parted_at_the_bound_keep_their_vectors() -> None:
    space = space_for(fn.task(fn.batched(2, 28, 100, 24)), BOARD.hardware, 1)
    values = {"vectors": 1, "rows": 7, "rows2": 1, "panel": 1, "block": 2, "block2": 1, "unroll": 1}
    values |= {"window": 0, "pad": 0, "fetch": 0}
    function = scheduled_function(space.apply(space.candidate(values, "test")))
    assert "pragma_loop_partition_hint" in function.script()
    assert tvm_ffi.structural_equal(with_shared_conditions(function), function)
