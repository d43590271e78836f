"""A last vector that is not full is written in shorter ones, which are all there or missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import te, tirx
from tvm.script import tirx as T

from host.build import build_kernel_library
from host.build.kernel import lower_function
from host.schedules import DesignSpace, scheduled_function, space_for
from host.tensor_ir.shared_conditions import with_shared_conditions, with_short_last_vectors
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


@T.prim_func(s_tir=True)
def doubled(x: T.Buffer((12, 60), "float32"), out: T.Buffer((12, 60), "float32")) -> None:
    for r in range(12):
        for o in T.serial(4, annotations={"pragma_loop_partition_hint": 1}):
            for i in T.vectorized(16):
                with T.sblock("out"):
                    row = T.axis.spatial(12, r)
                    channel = T.axis.spatial(60, o * 16 + i)
                    T.where(o * 16 + i < 60)
                    out[row, channel] = x[row, channel] * T.float32(2.0)


def test_the_last_vector_of_a_parted_loop_has_no_condition_of_its_elements(tmp_path: Path) -> None:
    target = tvm.target.Target("llvm")
    lowered = lower_function(doubled, "k", target)["k"].body
    bounds: list[tirx.LT] = []
    tvm_ffi.structural_walk(lowered, (tirx.LT, bounds.append))
    assert not bounds
    path = build_kernel_library({"k": doubled}, tmp_path / "k.so", target)
    x = np.arange(720, dtype=np.float32).reshape(12, 60)
    made = tvm.runtime.tensor(np.zeros_like(x))
    tvm.runtime.load_module(str(path))["k"](tvm.runtime.tensor(x), made)
    np.testing.assert_array_equal(made.numpy(), 2 * x)


def _int(value: int) -> tirx.IntImm:
    return tirx.IntImm("int32", value)


def _bounded(condition: Callable[[tirx.Var], tirx.PrimExpr]) -> tirx.For:
    element, out = tirx.Var("i", "int32"), tirx.decl_buffer((64,), "float32")
    store = tirx.BufferStore(out, tirx.const(1.0, "float32"), [element])
    choice = tirx.IfThenElse(condition(element), store, None)
    return tirx.For(element, 0, 16, tirx.ForKind.VECTORIZED, choice)


def _vectors(body: tirx.Stmt) -> list[int]:
    found: list[int] = []
    tvm_ffi.structural_walk(body, (tirx.For, lambda loop: found.append(int(loop.extent))))
    return found


@pytest.mark.parametrize(
    ("left", "lengths"), [(4, [4]), (8, [8]), (12, [8, 4]), (10, [16]), (16, [16]), (20, [16])]
)
def test_a_cut_vector_becomes_vectors_of_powers_of_two(left: int, lengths: list[int]) -> None:
    made = with_short_last_vectors(
        _bounded(lambda i: tirx.LT(tirx.Add(tirx.Mul(_int(3), _int(16)), i), _int(48 + left)))
    )
    assert _vectors(made) == lengths


@pytest.mark.parametrize(
    "condition",
    [
        lambda i: tirx.LT(tirx.Add(i, i), _int(12)),
        lambda i: tirx.LT(tirx.Mul(i, _int(3)), _int(12)),
        lambda i: tirx.LT(tirx.Add(tirx.Var("row", "int32"), i), _int(12)),
        lambda i: tirx.LT(i, tirx.Var("end", "int32")),
    ],
)
def test_bounds_of_more_than_an_element_stay(condition: Callable[[tirx.Var], tirx.PrimExpr]) -> None:
    assert _vectors(with_short_last_vectors(_bounded(condition))) == [16]
