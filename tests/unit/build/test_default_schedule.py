from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te, tirx, topi

from host.build import default_schedule
from host.lowering.script import function_of_script
from tests.unit.build.conftest import Run


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def matmul(rows: int, depth: int, columns: int) -> tirx.PrimFunc:
    left = te.placeholder((rows, depth), name="left")
    right = te.placeholder((depth, columns), name="right")
    k = te.reduce_axis((0, depth), name="k")
    product = te.compute(
        (rows, columns), lambda i, j: te.sum(left[i, k] * right[k, j], axis=k), name="product"
    )
    return te.create_prim_func([left, right, topi.nn.relu(product)])


@pytest.mark.parametrize("sizes", [(96, 64, 128), (7, 33, 48), (1, 17, 16), (5, 3, 7), (1, 1, 1)])
def test_matmul(run: Run, sizes: tuple[int, int, int]) -> None:
    rows, depth, columns = sizes
    left, right = draw(rows, depth), draw(depth, columns, seed=1)
    result = run(default_schedule(matmul(*sizes)), left, right)
    np.testing.assert_allclose(result, np.maximum(left @ right, 0), rtol=1e-4, atol=1e-5)


def test_large_work_runs_in_parallel_and_small_does_not() -> None:
    assert "T.parallel" in default_schedule(matmul(96, 64, 128)).script()
    assert "T.parallel" not in default_schedule(matmul(4, 8, 16)).script()


def _rows(body: str) -> tirx.PrimFunc:
    """A block of several statements for each row of a matrix."""
    return function_of_script(f"""
@T.prim_func(s_tir=True, private=True)
def function(source: T.Buffer((64, 1024), "float32"), result: T.Buffer((64, 1024), "float32")) -> None:
    for i in range(64):
        with T.sblock("row"):
            vi = T.axis.spatial(64, i)
            total = T.sblock_alloc_buffer((1,), "float32", scope="local")
            total[0] = T.float32(0)
            for j in range(1024):
                {body}
""")


def test_steps_of_several_statements_run_in_parallel_if_they_are_independent(run: Run) -> None:
    sums = default_schedule(_rows("total[0] = total[0] + source[vi, j]; result[vi, j] = total[0]"))
    assert "T.parallel" in sums.script()
    a = draw(64, 1024)
    np.testing.assert_allclose(run(sums, a), a.cumsum(1), rtol=1e-4, atol=1e-4)
    before = "T.if_then_else(vi > 0, result[vi - 1, j], T.float32(0))"
    chained = default_schedule(_rows(f"total[0] = {before}; result[vi, j] = source[vi, j] + total[0]"))
    assert "T.parallel" not in chained.script()
    np.testing.assert_allclose(run(chained, a), a.cumsum(0), rtol=1e-4, atol=1e-4)


def test_convolution_with_padding(run: Run) -> None:
    image, weight = te.placeholder((1, 9, 9, 8)), te.placeholder((3, 3, 8, 16))
    function = te.create_prim_func([image, weight, topi.nn.conv2d_nhwc(image, weight, 2, 1, 1)])
    a, w = draw(1, 9, 9, 8), draw(3, 3, 8, 16, seed=1)
    padded = np.pad(a, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))[:, ::2, ::2]
    expected = np.einsum("nhwcij,ijco->nhwo", windows, w)
    np.testing.assert_allclose(run(default_schedule(function), a, w), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(64, 128), (33, 77), (1, 4096), (300, 256)])
@pytest.mark.parametrize("name", ["sum", "max", "min", "prod", "argmax"])
def test_reductions_along_rows(run: Run, name: str, shape: tuple[int, int]) -> None:
    source = te.placeholder(shape)
    function = te.create_prim_func([source, getattr(topi, name)(source, -1)])
    a = draw(*shape) if name != "prod" else 1 + draw(*shape) / shape[1]
    result = run(default_schedule(function), a)
    np.testing.assert_allclose(result, getattr(np, name)(a, -1), rtol=1e-4, atol=1e-4)


def test_softmax_and_what_is_not_inlined(run: Run) -> None:
    source = te.placeholder((32, 48))
    scheduled = default_schedule(te.create_prim_func([source, topi.nn.softmax(source, -1)]))
    assert scheduled.script().count("T.exp(") == 1, "the exponential is computed once"
    a = draw(32, 48)
    e = np.exp(a - a.max(-1, keepdims=True))
    np.testing.assert_allclose(run(scheduled, a), e / e.sum(-1, keepdims=True), rtol=1e-4, atol=1e-6)


def test_elementwise_chain_becomes_one_loop(run: Run) -> None:
    source = te.placeholder((40, 50))
    function = te.create_prim_func([source, topi.add(topi.multiply(topi.negative(source), 2.0), 1.0)])
    scheduled = default_schedule(function)
    assert scheduled.script().count("T.sblock(") == 2, "the root and one block"
    a = draw(40, 50)
    np.testing.assert_allclose(run(scheduled, a), 1 - 2 * a, rtol=1e-6)


def test_what_cannot_be_scheduled_still_runs(run: Run) -> None:
    source = te.placeholder((6, 20))
    function = te.create_prim_func([source, topi.cumsum(source, 1)])  # one opaque block
    a = draw(6, 20)
    np.testing.assert_allclose(run(default_schedule(function), a), a.cumsum(1), rtol=1e-4, atol=1e-5)


def test_integers_booleans_and_gathers(run: Run) -> None:
    flags = te.placeholder((8, 64), dtype="bool")
    a = np.zeros((8, 64), "bool")
    a[3, 5] = True
    scheduled = default_schedule(te.create_prim_func([flags, topi.any(flags, -1)]))
    np.testing.assert_array_equal(run(scheduled, a), a.any(-1))
    numbers = te.placeholder((8, 64), dtype="int64")
    b = np.arange(512).reshape(8, 64)
    scheduled = default_schedule(te.create_prim_func([numbers, topi.sum(numbers, 1)]))
    np.testing.assert_array_equal(run(scheduled, b), b.sum(1))
    table, places = te.placeholder((10, 16)), te.placeholder((5,), dtype="int32")
    c, p = draw(10, 16), np.array([1, 9, 0, 3, 3], "int32")
    scheduled = default_schedule(
        te.create_prim_func([table, places, topi.take(table, places, 0, mode="clip")])
    )
    np.testing.assert_array_equal(run(scheduled, c, p), c[p])


def test_keeps_the_name(target: tvm.target.Target) -> None:
    function = matmul(4, 4, 4).with_attr("global_symbol", "a_name")
    assert default_schedule(function).attrs["global_symbol"] == "a_name"
