"""Kernels over a range of lengths, compiled and run at every one of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import te, tirx

from host.dynamic.kernels import Kernel, clamped_program, kernel_over
from host.dynamic.range_programs import programs_over
from host.dynamic.request import Dimension
from host.dynamic.template import unify
from host.model import DeviceProfile
from tests.unit.schedules import functions

HIGH = 64
DIMENSION = Dimension("n", 1, HIGH, {})
WITNESSES = (37, 59, 97, 151)


@cache
def kernel(make: Callable[[int], tirx.PrimFunc], name: str, threads: int = 1) -> Kernel:
    """The kernel of a function over 1 to 64."""
    board = functions.board("avx2")
    profile = DeviceProfile("test", board, board.hardware, threads)
    template = unify({n: make(n) for n in WITNESSES}, name)
    return kernel_over(name, template, DIMENSION, profile, 0)


def compiled(made: Kernel) -> Callable[..., None]:
    target = tvm.target.Target({"kind": "llvm", "mcpu": "haswell"})
    function: Callable[..., None] = tvm.compile(made.function, target=target)[made.name]
    return function


def run(function: Callable[..., None], inputs: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    output = tvm.runtime.tensor(np.full(shape, np.nan, np.float32))
    function(*(tvm.runtime.tensor(value) for value in inputs), output)
    return output.numpy()


def dense(n: int) -> tirx.PrimFunc:
    return functions.dense(n, 32, 24, 8)


def scores(n: int) -> tirx.PrimFunc:
    return functions.batched(2, n, n, 8)


def weighted(n: int) -> tirx.PrimFunc:
    return functions.batched(2, n, 16, n)


def doubled(n: int) -> tirx.PrimFunc:
    a = te.placeholder((n, 10), name="A")
    b = te.compute((n, 10), lambda i, j: a[i, j] * tirx.const(2, "float32"), name="double")
    return te.create_prim_func([a, b])


def test_rows_along_the_length_with_a_fused_epilogue() -> None:
    made = kernel(dense, "dense")
    assert made.source == "gensor" and made.rule == "tiled"
    function, draw = compiled(made), np.random.default_rng(0)
    weights = draw.normal(size=(4, 24, 8)).astype(np.float32)
    for n in range(1, HIGH + 1):
        a = draw.normal(size=(n, 24)).astype(np.float32)
        got = run(function, [a, weights], (n, 32))
        np.testing.assert_allclose(got, functions.dense_numpy(a, weights), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("make", [scores, weighted])
def test_columns_and_sums_along_the_length(make: Callable[[int], tirx.PrimFunc]) -> None:
    made = kernel(make, make.__name__)
    assert made.source == "gensor"
    function, draw = compiled(made), np.random.default_rng(1)
    for n in range(1, HIGH + 1):
        first, second = ((2, n, 8), (2, 8, n)) if make is scores else ((2, n, n), (2, n, 16))
        a = draw.normal(size=first).astype(np.float32)
        b = draw.normal(size=second).astype(np.float32)
        np.testing.assert_allclose(run(function, [a, b], (2, n, second[2])), a @ b, rtol=1e-4, atol=1e-4)


def test_a_task_without_tiles_has_one_program_for_all() -> None:
    made = kernel(doubled, "doubled")
    assert (made.source, made.programs) == ("gensor", 1)
    function = compiled(made)
    for n in range(1, HIGH + 1):
        a = np.random.default_rng(n).normal(size=(n, 10)).astype(np.float32)
        np.testing.assert_array_equal(run(function, [a], (n, 10)), 2 * a)


def padded(n: int) -> tirx.PrimFunc:
    return functions.convolution(n, 5, 16, 3, 1, lanes=8)


def test_a_padded_input_is_copied_and_tiles_of_the_image_overlap() -> None:
    made = kernel(padded, "padded")
    assert (made.source, made.rule) == ("gensor", "tiled"), made.reason
    function, draw = compiled(made), np.random.default_rng(0)
    weights = draw.normal(size=(2, 3, 3, 5, 8)).astype(np.float32)
    bias = draw.normal(size=(16,)).astype(np.float32)
    for n in (*range(1, 20), 31, 37, 64):
        image = draw.normal(size=(1, n, n, 5)).astype(np.float32)
        got = run(function, [image, weights, bias], (1, n, n, 16))
        expected = functions.convolution_numpy(image, weights, bias, 1)
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-3)


def strided(n: int) -> tirx.PrimFunc:
    return functions.convolution(n, 5, 16, 3, 2, lanes=8)


@pytest.mark.parametrize("threads", [1, 4])
def test_steps_that_no_tile_of_the_length_has_are_taken_one_by_one(threads: int) -> None:
    made = kernel(strided, "strided", threads)
    assert (made.source, made.rule, made.programs) == ("gensor", "tiled", 1), made.reason
    function, draw = compiled(made), np.random.default_rng(0)
    weights = draw.normal(size=(2, 3, 3, 5, 8)).astype(np.float32)
    bias = draw.normal(size=(16,)).astype(np.float32)
    for n in (1, 2, 3, 4, 7, 16, 31, 64):
        image = draw.normal(size=(1, n, n, 5)).astype(np.float32)
        expected = functions.convolution_numpy(image, weights, bias, 2)
        got = run(function, [image, weights, bias], expected.shape)
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-3)


def mean(n: int) -> tirx.PrimFunc:
    a = te.placeholder((n, 16), name="A")
    k = te.reduce_axis((0, n), name="k")
    total = te.compute((16,), lambda j: te.sum(a[k, j], axis=k), name="total")
    share = te.compute((16,), lambda j: total[j] * tirx.const(1.0 / n, "float32"), name="share")
    return te.create_prim_func([a, share])


def test_a_mean_along_the_length() -> None:
    made = kernel(mean, "mean")
    assert (made.source, made.rule) == ("gensor", "tiled"), made.reason
    function = compiled(made)
    for n in range(1, HIGH + 1):
        a = np.random.default_rng(n).normal(size=(n, 16)).astype(np.float32)
        np.testing.assert_allclose(run(function, [a], (16,)), a.mean(0), rtol=1e-4, atol=1e-5)


def test_short_and_long_lengths_have_programs_of_their_own() -> None:
    made = kernel(dense, "dense")
    assert 1 < made.programs <= 8
    assert made.decisions


def test_weights_from_memory_are_fetched_ahead_where_many_rows_use_them() -> None:
    """The programs of one to three rows are not refused, and only they do not fetch."""

    def large(n: int) -> tirx.PrimFunc:
        return functions.dense(n, 768, 640, 8)

    made = kernel(large, "large")
    code = made.function.script()
    # Every program has sums in registers: one of them takes a single row, so none is as it was lowered.
    assert code.count("_local = T.alloc_local(") == made.programs
    assert made.programs - 3 <= code.count("llvm.prefetch") < made.programs


def test_tiles_overlap_and_not_blocks_of_tiles_where_weights_are_fetched_ahead() -> None:
    """A prefetch counts the tiles of a block; it must not keep the block from being taken apart."""

    def large(n: int) -> tirx.PrimFunc:
        return functions.dense(n, 768, 640, 8)

    board = functions.board("avx2")
    profile = DeviceProfile("test", board, board.hardware, 1)
    template = unify({n: large(n) for n in WITNESSES}, "large")
    programs = programs_over("large", template, profile, 1, 512, 0)
    blocked = [p for p in programs if p.tile.period > p.tile.step >= 4]
    assert blocked
    rows = blocked[0].tile.step
    made = clamped_program("large", template, blocked[0], profile, tirx.Var("length", "int32"))
    assert "llvm.prefetch" in made.function.script()
    assert made.shortest_length == rows
    n = 2 * rows + 1
    a = np.random.default_rng(0).standard_normal((n, 640), dtype="float32")
    w = np.random.default_rng(1).standard_normal((768 // 8, 640, 8), dtype="float32")
    target = tvm.target.Target({"kind": "llvm", "mcpu": "haswell"})
    function = tvm.compile(made.function.with_attr("global_symbol", "large"), target=target)["large"]
    np.testing.assert_allclose(
        run(function, [a, w], (n, 768)), functions.dense_numpy(a, w), rtol=1e-3, atol=1e-3
    )


def rows(n: int) -> tirx.PrimFunc:
    return functions.softmax(n, 40)


def blocks_of_rows(n: int) -> tirx.PrimFunc:
    return functions.softmax(n, 8, 40)


@pytest.mark.parametrize("threads", [4, 9])
@pytest.mark.parametrize("make", [dense, scores, weighted, doubled, rows, blocks_of_rows])
def test_several_threads_share_a_program_of_the_design_space(
    make: Callable[[int], tirx.PrimFunc], threads: int
) -> None:
    made = kernel(make, make.__name__, threads)
    assert made.source == "gensor", made.reason


def large(n: int) -> tirx.PrimFunc:
    return functions.dense(n, 768, 640, 8)


def test_the_loops_over_tiles_run_in_parallel_at_every_length() -> None:
    made = kernel(large, "large", 4)
    assert made.source == "gensor" and dict(made.decisions or {})["parallel"] == 4
    kinds: list[int] = []
    tvm_ffi.structural_walk(made.function.body, (tirx.For, lambda loop: kinds.append(loop.kind)))
    assert tirx.ForKind.PARALLEL in kinds
    function, draw = compiled(made), np.random.default_rng(0)
    weights = draw.standard_normal((768 // 8, 640, 8), dtype="float32")
    for n in (*range(1, 20), 31, 37, 63, 64):
        a = draw.standard_normal((n, 640), dtype="float32")
        got = run(function, [a, weights], (n, 768))
        np.testing.assert_allclose(got, functions.dense_numpy(a, weights), rtol=1e-3, atol=1e-3)
