"""Kernels of a GPU over a range of lengths that turn tiles or take vectors, emulated at single lengths."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from host.dynamic.kernels import kernel_over
from host.dynamic.request import Dimension
from host.dynamic.template import unify
from host.model import DeviceProfile
from host.tensor_ir.structural import mapped
from tests.cuda_emulator.run import emulate
from tests.unit.schedules import functions as fn
from tests.unit.schedules.cuda.cuda_cases import gpu_board, gpu_target

_WITNESSES = (37, 59, 97, 151)


def _at(function: tirx.PrimFunc, number: int) -> tirx.PrimFunc:
    """The program at one length, whose numbers of blocks are numbers."""
    (length,) = tirx.analysis.undefined_vars(function.body, list(function.params))
    analyser = tvm.sym.Analyzer()

    def simplified(loop: tirx.For) -> tirx.For:
        if isinstance(loop.extent, tirx.IntImm):
            return loop
        extent = analyser.simplify(loop.extent)
        return tirx.For(loop.loop_var, loop.min, extent, loop.kind, loop.body, loop.thread_binding)

    def own(variable: Any) -> Any:
        return tirx.const(number, "int32") if variable.same_as(length) else variable

    return mapped(mapped(function, (tvm.ir.Var, own)), (tirx.For, simplified))


def _drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype("float32")


def _rows_of_a_table(numbers: int) -> tirx.PrimFunc:
    table, index = te.placeholder((50, 64), "float32", "T"), te.placeholder((numbers,), "int64", "I")
    made = te.compute((numbers, 64), lambda i, j: table[index[i].astype("int32"), j], name="take")
    return te.create_prim_func([table, index, made])


def _pooled(length: int) -> tirx.PrimFunc:
    """The greatest of three neighbours along the length."""
    a, k = te.placeholder((1, length + 2, 16), "float32", "A"), te.reduce_axis((0, 3), "k")
    made = te.compute((1, length, 16), lambda n, i, c: te.max(a[n, i + k, c], axis=k), name="max")
    return te.create_prim_func([a, made])


@pytest.mark.parametrize(
    ("make", "given", "numpy", "decision"),
    [
        (
            _rows_of_a_table,
            lambda n: [_drawn(50, 64), np.arange(n, dtype="int64") * 7 % 50],
            lambda table, index: table[index],
            "vector",
        ),
        (
            _pooled,
            lambda n: [_drawn(1, n + 2, 16)],
            lambda x: np.maximum(np.maximum(x[:, :-2], x[:, 1:-1]), x[:, 2:]),
            "width",
        ),
        (
            lambda n: fn.transpose((1, n, 4, 32), (0, 2, 3, 1)),
            lambda n: [_drawn(1, n, 4, 32)],
            lambda x: x.transpose(0, 2, 3, 1),
            "rows",
        ),
        (
            lambda n: fn.transpose((1, 48, n), (0, 2, 1)),
            lambda n: [_drawn(1, 48, n)],
            lambda x: x.transpose(0, 2, 1),
            "rows",
        ),
        (
            lambda n: fn.lowered_layer_norm(n, 192),
            lambda n: [_drawn(n, 192), _drawn(192), _drawn(192)],
            fn.layer_norm_numpy,
            "vector",
        ),
    ],
    ids=["rows of a table", "pooling", "heads", "columns along the length", "norm"],
)
def test_one_program_serves_all_lengths(
    make: Callable[[int], tirx.PrimFunc],
    given: Callable[[int], list[np.ndarray]],
    numpy: Callable[..., np.ndarray],
    decision: str,
    tmp_path: Path,
) -> None:
    board = gpu_board()
    profile = DeviceProfile("gpu", board, board.hardware, 1)
    template = unify({n: make(n) for n in _WITNESSES}, "kernel")
    made = kernel_over("kernel", template, Dimension("n", 1, 160, {}), profile, 0)
    assert dict(made.decisions)[decision] > 1
    for length in (5, 100):
        inputs = given(length)
        wanted = numpy(*inputs)
        output = np.full(wanted.shape, np.nan, "float32")
        emulate(_at(made.function, length), [*inputs, output], gpu_target(), tmp_path)
        np.testing.assert_allclose(output, wanted, rtol=1e-4, atol=1e-4)
