"""Numbers are rounded to unsigned bytes on AVX-512 as everywhere, in fewer operations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from host.build import build_kernel_library
from host.build.kernel import lower_function
from host.lowering.ops.elementwise.quantization import quantized
from tests.unit.schedules import functions as fn

TIES = np.arange(-300, 300, dtype=np.float32) + np.float32(0.5)
FAR = np.array([2.0**31, -(2.0**31), 2.0**32, 3e38, -3e38, np.inf, -np.inf, np.nan, -0.0, 1e-40], np.float32)
NEAR = np.concatenate([np.nextafter(TIES, np.float32(end)) for end in (-np.inf, np.inf)])
GIVEN = np.concatenate([TIES, NEAR, np.round(TIES), FAR, np.zeros(6, np.float32)])
ZEROS = (0, 7, 128, 255)


def kernel(zero: int, dtype: str = "uint8") -> tirx.PrimFunc:
    """Quantises `GIVEN` with a scale of one, in vectors of 16."""
    x = te.placeholder(GIVEN.shape, "float32", name="x")
    scale, point = tirx.const(1.0, "float32"), tirx.const(zero, dtype)
    y = te.compute(GIVEN.shape, lambda i: quantized((x(i), scale, point), None, dtype), name="y")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([x, y]))
    _, lanes = schedule.split(schedule.get_loops(schedule.get_sblock("y"))[0], [None, 16])
    schedule.vectorize(lanes)
    return schedule.mod["main"]


def target(restrict: str = "") -> tvm.target.Target:
    return tvm.target.Target(fn.board(restrict).tvm_target)


def assembly(zero: int, restrict: str = "", dtype: str = "uint8") -> str:
    """What the compiler makes of the function."""
    lowered = lower_function(kernel(zero, dtype), "kernel", target(restrict))
    return str(tvm.get_global_func("target.build.llvm")(lowered, target(restrict)).inspect_source("s"))


@pytest.mark.parametrize("restrict", ["", "avx2"])
def test_every_number_becomes_the_same_byte(restrict: str, tmp_path: Path) -> None:
    functions = {f"kernel{zero}": kernel(zero) for zero in ZEROS}
    path = build_kernel_library(functions, tmp_path / "kernel.so", target(restrict))
    if not restrict and not fn.HAS_AVX512:
        pytest.skip("this processor has no AVX-512: the program is compiled and not run")
    module = tvm.runtime.load_module(str(path))
    for zero in ZEROS:
        made = tvm.runtime.empty(GIVEN.shape, "uint8")
        module[f"kernel{zero}"](tvm.runtime.tensor(GIVEN), made)
        wanted = np.clip(np.rint(np.nan_to_num(GIVEN.astype(np.float64), nan=1e30)) + zero, 0, 255)
        np.testing.assert_array_equal(made.numpy(), wanted.astype(np.uint8))


def test_the_instructions_bound_and_round() -> None:
    code = assembly(0)
    assert "vpmovusdb" in code and "vcvtps2dq" in code
    assert "vminps" not in code and "vpminud" not in code and "vaddps" not in code
    assert code.count("vmaxps") == code.count("vcvtps2dq")


def test_other_types_and_processors_keep_the_sums() -> None:
    assert "vcvtps2dq" not in assembly(0, dtype="int8") and "vcvtps2dq" not in assembly(7)
    assert "vpmovusdb" not in assembly(0, "avx2") and "vcvtps2dq" not in assembly(0, "avx2")
