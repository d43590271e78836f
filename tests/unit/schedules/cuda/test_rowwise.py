"""Rows that several threads reduce together, some rows in a block."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tvm import te, tirx, topi

from host.build import compile_cuda
from host.schedules import scheduled_function, space_for
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
    values = {"threads": threads, "rows": rows, "inline": 0}
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
    values = {"threads": threads, "rows": rows, "inline": inline}
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
    values = {"threads": threads, "rows": 4, "inline": 0}
    program = scheduled_function(space.apply(space.candidate(values, "test")))
    text = compile_cuda(program, "kernel", gpu_target()).module.inspect_source("cuda")
    written = text.split("_shared_ptr[((int)threadIdx.y)] = ")
    scale = next(part for part in written[1:] if "sqrtf(" in part.split(";")[0])
    barrier, read = scale.index("__syncthreads();"), scale.index("epilogue_ptr[")
    assert barrier < read
