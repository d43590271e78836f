"""Bytes of four vectors put side by side are the same by one order of bytes and by shifts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from host.build import build_kernel_library
from host.build.kernel import lower_function
from tests.unit.schedules import functions as fn
from tests.unit.tensor_ir.test_byte_tables import HAS_VBMI, TARGET

SIZE = 64
NAME = "edgetlm_interleaved_16"


def kernel(lanes: int, last: int = 24) -> tirx.PrimFunc:
    """Four rows of bytes as numbers of 32 bits, the last row shifted by `last` bits."""
    x = te.placeholder((4, SIZE), "uint8", name="x")

    def joined(i: tirx.Var) -> tirx.PrimExpr:
        a, b, c, d = (x(row, i).astype("int32") for row in range(4))
        return a | (b << 8) | (c << 16) | (d << last)

    y = te.compute((SIZE,), joined, name="y")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([x, y]))
    _, inner = schedule.split(schedule.get_loops(schedule.get_sblock("y"))[0], [None, lanes])
    schedule.vectorize(inner)
    return schedule.mod["main"]


@pytest.mark.parametrize("instruction", [False, True])
def test_each_lane_has_its_four_bytes_in_order(instruction: bool, tmp_path: Path) -> None:
    if instruction and not HAS_VBMI:
        pytest.skip("no AVX-512 VBMI here")
    target = tvm.target.Target(TARGET if instruction else fn.board("avx2").tvm_target)
    given = np.random.default_rng(0).integers(0, 256, (4, SIZE)).astype(np.uint8)
    functions = {f"kernel{lanes}": kernel(lanes) for lanes in (4, 8, 16)}
    module = tvm.runtime.load_module(str(build_kernel_library(functions, tmp_path / "kernels.so", target)))
    for name in functions:
        made = tvm.runtime.empty((SIZE,), "int32")
        module[name](tvm.runtime.tensor(given), made)
        np.testing.assert_array_equal(made.numpy().view(np.uint8).reshape(SIZE, 4), given.T)


def test_the_instruction_orders_four_bytes_a_lane_and_nothing_else() -> None:
    target = tvm.target.Target(TARGET)
    assert NAME in str(lower_function(kernel(16), "kernel", target))
    # Two rows in one place are a sum of bits and not an order of bytes.
    assert NAME not in str(lower_function(kernel(16, last=16), "kernel", target))
    assert NAME not in str(lower_function(kernel(8), "kernel", target))
