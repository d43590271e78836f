"""Numbers are rounded to bytes on AVX-512 and on AArch64 as everywhere, in fewer operations."""

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
from tests.unit.schedules.cpu import dot_cases

TIES = np.arange(-300, 300, dtype=np.float32) + np.float32(0.5)
FAR = np.array([2.0**31, -(2.0**31), 2.0**32, 3e38, -3e38, np.inf, -np.inf, np.nan, -0.0, 1e-40], np.float32)
NEAR = np.concatenate([np.nextafter(TIES, np.float32(end)) for end in (-np.inf, np.inf)])
GIVEN = np.concatenate([TIES, NEAR, np.round(TIES), FAR, np.zeros(6, np.float32)])
ZEROS = (0, 7, 128, 255)


def kernel(zero: int, dtype: str = "uint8", lanes: int = 16, whole: bool = False) -> tirx.PrimFunc:
    """Quantises `GIVEN` with a scale of one, or whole numbers times a half, in vectors."""
    x = te.placeholder(GIVEN.shape, "int32" if whole else "float32", name="x")
    scale, point = tirx.const(1.0, "float32"), tirx.const(zero, dtype)

    def element(i: tirx.Var) -> tirx.PrimExpr:
        value = x(i).astype("float32") * tirx.const(0.5, "float32") if whole else x(i)
        return quantized((value, scale, point), None, dtype)

    y = te.compute(GIVEN.shape, element, name="y")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([x, y]))
    _, inner = schedule.split(schedule.get_loops(schedule.get_sblock("y"))[0], [None, lanes])
    schedule.vectorize(inner)
    return schedule.mod["main"]


def rounded(zero: int, dtype: str) -> np.ndarray:
    """What every processor makes of `GIVEN`; NaN is the greatest byte."""
    limits = np.iinfo(dtype)
    found = np.rint(np.nan_to_num(GIVEN.astype(np.float64), nan=1e30)) + zero
    return np.clip(found, limits.min, limits.max).astype(dtype)


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
        np.testing.assert_array_equal(made.numpy(), rounded(zero, "uint8"))


def test_the_instructions_bound_and_round() -> None:
    code = assembly(0)
    assert "vpmovusdb" in code and "vcvtps2dq" in code
    assert "vminps" not in code and "vpminud" not in code and "vaddps" not in code
    assert code.count("vmaxps") == code.count("vcvtps2dq")


def test_other_types_and_processors_keep_the_sums() -> None:
    assert "vcvtps2dq" not in assembly(0, dtype="int8") and "vcvtps2dq" not in assembly(7)
    assert "vpmovusdb" not in assembly(0, "avx2") and "vcvtps2dq" not in assembly(0, "avx2")


@pytest.mark.parametrize(("dtype", "narrowing"), [("int8", "sqxtn"), ("uint8", "sqxtun")])
def test_arm_rounds_and_narrows_by_saturating_instructions(dtype: str, narrowing: str) -> None:
    """16 bytes: four conversions, four narrowings in two registers, the zero point, two narrowings."""
    arm = tvm.target.Target(dot_cases.arm_board().tvm_target)
    for whole, bounded in ((True, 0), (False, 4)):
        lowered = lower_function(kernel(7, dtype, whole=whole), "kernel", arm)
        code = str(tvm.get_global_func("target.build.llvm")(lowered, arm).inspect_source("s"))
        times = code.count("fcvtns") // 4
        assert times > 0 and code.count("fcvtns") == 4 * times
        assert code.count("sqadd") == 2 * times
        assert code.count("fmin") == bounded * times and "fmax" not in code and "fadd" not in code
        found = [line.split()[0] for line in code.splitlines() if line.split()[:1]]
        assert sum(one in ("sqxtn", "sqxtn2") for one in found) == (6 if dtype == "int8" else 4) * times
        assert sum(one in (narrowing, f"{narrowing}2") for one in found) >= 2 * times
