"""Rows that several threads reduce together, some rows in a block."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from tvm import te, tirx, topi

from host.build import compile_cuda
from host.gensor import Gensor
from host.model import DeviceProfile
from host.schedules import DesignSpace, scheduled_function, space_for
from targets.nvidia import ORIN_NANO
from tests.cuda_emulator.run import emulate
from tests.unit.schedules import functions as fn
from tests.unit.schedules.cuda.cuda_cases import gpu_board, gpu_target

_ROWS, _COLUMNS = 8, 128


def _softmax() -> tirx.PrimFunc:
    source = te.placeholder((_ROWS, _COLUMNS), "float32", "A")
    return te.create_prim_func([source, topi.nn.softmax(source, -1)])


def _layer_norm() -> tirx.PrimFunc:
    """What it does with a row once stands alone between the sums and the elements."""
    source = te.placeholder((_ROWS, _COLUMNS), "float32", "A")
    k, n = te.reduce_axis((0, _COLUMNS), "k"), te.reduce_axis((0, _COLUMNS), "n")
    total = te.compute((_ROWS,), lambda i: te.sum(source[i, k], k), "total")

    def centred(i: tirx.Var, j: tirx.Var) -> tirx.PrimExpr:
        return source[i, j] - total[i] / _COLUMNS

    squares = te.compute((_ROWS,), lambda i: te.sum(centred(i, n) * centred(i, n), n), "squares")
    scale = te.compute((_ROWS,), lambda i: 1.0 / te.sqrt(squares[i] / _COLUMNS + 1e-5), "scale")
    normed = te.compute((_ROWS, _COLUMNS), lambda i, j: centred(i, j) * scale[i], "normed")
    return te.create_prim_func([source, normed])


@pytest.mark.parametrize(("threads", "rows"), [(64, 4), (128, 2), (32, 2), (16, 8), (64, 1)])
def test_what_is_computed_once_for_a_row_is_seen_by_all_its_threads(
    threads: int, rows: int, tmp_path: Path
) -> None:
    """A GPU computed others: one thread scales, and nothing kept the others of the row from being earlier."""
    space = space_for(fn.task(_layer_norm()), gpu_board(ORIN_NANO).hardware)
    assert space.rule.name == "cuda_rowwise"
    values = {"threads": threads, "rows": rows, "inline": 0, "vector": 1}
    program = scheduled_function(space.apply(space.candidate(values, "test")))
    source = np.random.default_rng(0).standard_normal((_ROWS, _COLUMNS)).astype("float32")
    output = np.full((_ROWS, _COLUMNS), np.nan, "float32")
    emulate(program, [source, output], gpu_target(), tmp_path)
    wanted = (source - source.mean(-1, keepdims=True)) / np.sqrt(source.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(output, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("threads", "rows", "inline"), [(64, 4, 0), (128, 2, 1), (16, 8, 0), (32, 2, 1), (64, 1, 1)]
)
def test_what_a_row_has_found_is_seen_by_all_its_threads(
    threads: int, rows: int, inline: int, tmp_path: Path
) -> None:
    """A GPU computed others: TVM leaves the barrier out where a block has several rows."""
    space = space_for(fn.task(_softmax()), gpu_board(ORIN_NANO).hardware)
    assert space.rule.name == "cuda_rowwise"
    values = {"threads": threads, "rows": rows, "inline": inline, "vector": 1}
    program = scheduled_function(space.apply(space.candidate(values, "test")))
    source = np.random.default_rng(0).standard_normal((_ROWS, _COLUMNS)).astype("float32")
    output = np.full((_ROWS, _COLUMNS), np.nan, "float32")
    done = emulate(program, [source, output], gpu_target(), tmp_path)
    powers = np.exp(source - source.max(-1, keepdims=True))
    np.testing.assert_allclose(output, powers / powers.sum(-1, keepdims=True), rtol=1e-5)
    # Within a warp the emulation runs lane by lane, so only the text shows the barrier.
    text = done.kernel.module.inspect_source("cuda")
    results = [part for part in text.split("_shared_ptr[((int)threadIdx.y)] = ")[1:] if rows > 1]
    assert all("__syncthreads();" in part for part in results)
    assert rows == 1 or len(results) == 2


@pytest.mark.parametrize("threads", [32, 64])
def test_what_one_thread_of_a_row_computes_is_seen_by_the_others(threads: int) -> None:
    """The scale of a layer norm is made of a sum by one thread, and a GPU with several rows read the sum."""
    space = space_for(fn.task(fn.lowered_layer_norm(_ROWS, _COLUMNS)), gpu_board(ORIN_NANO).hardware)
    values = {"threads": threads, "rows": 4, "inline": 0, "vector": 1}
    program = scheduled_function(space.apply(space.candidate(values, "test")))
    text = compile_cuda(program, "kernel", gpu_target()).module.inspect_source("cuda")
    written = text.split("_shared_ptr[((int)threadIdx.y)] = ")
    scale = next(part for part in written[1:] if "sqrtf(" in part.split(";")[0])
    barrier, read = scale.index("__syncthreads();"), scale.index("epilogue_ptr[")
    assert barrier < read


def _long(function: tirx.PrimFunc) -> DesignSpace:
    space = space_for(fn.task(function), gpu_board(ORIN_NANO).hardware)
    assert space.rule.name == "cuda_rowwise"
    return space


@pytest.mark.parametrize(("threads", "splits"), [(64, 4), (1024, 2), (32, 64)])
def test_blocks_share_a_long_row(threads: int, splits: int, tmp_path: Path) -> None:
    """With several numbers of a row, and elements that do not fill the last turn."""
    shape = (2, 16390)
    x, scale, shift = (
        np.random.default_rng(n).normal(size=size) for n, size in enumerate([shape, 16390, 16390])
    )
    given = [one.astype("float32") for one in (x + 3.0, scale, shift)]
    values = {"threads": threads, "rows": 1, "inline": 0, "splits": splits, "vector": 1}
    for name, function, inputs, wanted in (
        ("norm", fn.lowered_layer_norm(*shape), given, fn.layer_norm_numpy(*given)),
        ("softmax", fn.lowered_softmax(*shape), given[:1], fn.softmax_numpy(given[0])),
    ):
        space = _long(function)
        made, folder = np.full(shape, np.nan, "float32"), tmp_path / name
        folder.mkdir()
        program = scheduled_function(space.apply(space.candidate(values, "test")))
        done = emulate(program, [*inputs, made], gpu_target(), folder)
        np.testing.assert_allclose(made, wanted, rtol=2e-4, atol=2e-5 * wanted.max())
        assert done.counters.access_conflicts == 0
        assert not any(one.spills for one in done.kernel.resources)


@pytest.mark.parametrize("turned", [False, True])
def test_blocks_share_what_is_of_their_own_rows(turned: bool) -> None:
    """Columns are read by an index that is no linear one, as of rows that vectors do not divide."""
    rows, columns = (2, 2), 16390
    a, k = te.placeholder((*rows, columns), "float32", "a"), te.reduce_axis((0, columns), "k")
    total = te.compute(rows, lambda i, j: te.sum(a[i, j, k], k), name="total")
    made = te.compute((*rows, columns + 10), lambda i, j, n: a[i, j, tirx.min(n, columns - 1)] - total[i, j])

    def end(i: tirx.Var, j: tirx.Var, n: tirx.Var) -> tirx.PrimExpr:
        return made[(*((j, i) if turned else (i, j)), n + tirx.if_then_else(n < 16384, 0, 10))]

    space = _long(te.create_prim_func([a, te.compute((*rows, columns), end, name="end")]))
    assert ("splits" in {one.name for one in space.decisions}) == (not turned)


def test_a_long_row_is_shared_where_the_estimate_says_so() -> None:
    """The norm of a whole text: one block took an Orin Nano 31.6 us (estimate)."""
    space, board = _long(fn.lowered_layer_norm(1, 51200)), gpu_board(ORIN_NANO)
    (found,) = Gensor().propose(space, DeviceProfile("gpu", board, board.hardware, 1), (), 1, seed=0)
    choices = [one.choices for one in space.decisions]
    names = [one.name for one in space.decisions]
    every = [dict(zip(names, one, strict=True)) for one in itertools.product(*choices)]
    legal = [values for values in every if space.legal(values)]
    best = min(legal, key=space.estimate_s)
    assert best["splits"] > 1 and not space.traces(space.candidate(best, "test"))
    assert space.estimate_s(best) / found.estimate_s >= 0.995
    alone = min(space.estimate_s(values) for values in legal if values["splits"] == 1)
    assert space.estimate_s(best) < 0.8 * alone


def test_short_rows_and_many_have_no_such_decision() -> None:
    for shape in ((1, 4096), (8, 16384)):
        assert "splits" not in {one.name for one in _long(fn.lowered_layer_norm(*shape)).decisions}
