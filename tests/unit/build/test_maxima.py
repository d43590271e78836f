"""Maxima and minima with a number keep NaN, and bounds of places do not."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from host.build import build_kernel_library
from host.build.kernel import lower_function

TARGET = tvm.target.Target({"kind": "llvm", "mtriple": f"{platform.machine()}-linux-gnu"})
N = 8
GIVEN = np.array([np.nan, -np.inf, np.inf, -1, 0, 2, 7, np.nan], np.float32)


def kernel(expression: object, vectorised: bool) -> tvm.tirx.PrimFunc:
    """A function of `N` elements, element by element or as one vector."""
    x = te.placeholder((N,), "float32", name="x")
    y = te.compute((N,), lambda i: expression(x(i)), name="y")  # type: ignore[operator]
    schedule = tvm.s_tir.Schedule(te.create_prim_func([x, y]))
    if vectorised:
        schedule.vectorize(schedule.get_loops(schedule.get_sblock("y"))[0])
    return schedule.mod["main"]


def results(expression: object, dtype: str, vectorised: bool, folder: Path) -> np.ndarray:
    """What a kernel makes of `GIVEN`."""
    functions = {"kernel": kernel(expression, vectorised)}
    path = build_kernel_library(functions, folder / "kernel.so", TARGET)
    made = tvm.runtime.empty((N,), dtype)
    tvm.runtime.load_module(str(path))["kernel"](tvm.runtime.tensor(GIVEN), made)
    return made.numpy()


@pytest.mark.parametrize("vectorised", [False, True])
def test_relu_and_clip_of_nan_are_nan(vectorised: bool, tmp_path: Path) -> None:
    zero, six = tirx.const(0.0, "float32"), tirx.const(6.0, "float32")
    (tmp_path / "clip").mkdir()
    relu = results(lambda v: tirx.max(v, zero) + zero, "float32", vectorised, tmp_path)
    np.testing.assert_array_equal(relu, np.maximum(GIVEN, 0))
    clip = results(lambda v: tirx.max(tirx.min(v, six), zero) * six, "float32", vectorised, tmp_path / "clip")
    np.testing.assert_array_equal(clip, np.clip(GIVEN, 0, 6) * 6)


@pytest.mark.parametrize("bound", [1e30, 3.4e38])
@pytest.mark.parametrize("vectorised", [False, True])
def test_far_bounds_keep_nan(vectorised: bool, bound: float, tmp_path: Path) -> None:
    low, high = tirx.const(-bound, "float32"), tirx.const(bound, "float32")
    found = results(lambda v: tirx.max(tirx.min(v, high), low), "float32", vectorised, tmp_path)
    np.testing.assert_array_equal(found, np.clip(GIVEN, -np.float32(bound), np.float32(bound)))


@pytest.mark.parametrize("vectorised", [False, True])
def test_what_becomes_an_integer_is_bounded(vectorised: bool, tmp_path: Path) -> None:
    low, high = tirx.const(0.0, "float32"), tirx.const(3.0, "float32")

    def place(v: object) -> object:
        return tirx.Cast("int32", tirx.max(tirx.min(v, high), low))

    found = results(place, "int32", vectorised, tmp_path)
    assert (found >= 0).all() and (found <= 3).all(), found


def test_arm_has_one_instruction_that_keeps_nan() -> None:
    target = tvm.target.Target({"kind": "llvm", "mtriple": "aarch64-linux-gnu"})
    lowered = lower_function(kernel(lambda v: tirx.max(v, tirx.const(0.0, "float32")), True), "relu", target)
    text = tvm.get_global_func("target.build.llvm")(lowered, target).inspect_source("asm")
    instructions = {line.split()[0] for line in text.splitlines() if line.startswith("\t")}
    assert "fmax" in instructions and not instructions & {"fmaxnm", "fcmgt", "fcmlt"}
