"""Loads that start again after some iterations, as LLVM compiles them for AVX-512."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import s_tir, te, topi

from host.build import build_kernel_library
from host.build.kernel import lower_function
from host.build.periodic_loads import has_periodic_loads
from host.schedules import scheduled_function, space_for
from targets import board_for, declared
from tests.avx512 import HAS_AVX2, carried_out_in_shorter_vectors
from tests.unit.schedules import functions as fn

pytestmark = pytest.mark.skipif(not HAS_AVX2, reason="the code is written for AVX2 in the end")
BOARD = board_for(declared()["x86_64-v4"])
COLUMNS = 45


def run(function: tvm.tirx.PrimFunc, x: np.ndarray, shape: tuple[int, ...], folder: Path) -> np.ndarray:
    with carried_out_in_shorter_vectors():
        path = build_kernel_library({"k": function}, folder / "k.so", tvm.target.Target(BOARD.tvm_target))
    y = tvm.runtime.tensor(np.full(shape, np.nan, x.dtype))
    tvm.runtime.load_module(str(path))["k"](tvm.runtime.tensor(x), y)
    return y.numpy()


@pytest.mark.parametrize(
    ("shape", "repeats"),
    [
        ((2, 3, 4, 5), (7, 4, 6, 9)),
        ((3, 4, 2), (2, 1, 9)),
        ((5, 16, 4, 5), (8, 4, 9, 4)),
        ((16, 3, 4, 5), (1, 8, 7, 8)),
    ],
)
def test_repeated_tensors_keep_their_values(
    shape: tuple[int, ...], repeats: tuple[int, ...], tmp_path: Path
) -> None:
    x = np.random.default_rng(0).random(shape, np.float32)
    placeholder = te.placeholder(shape, "float32", name="x")
    task = fn.task(te.create_prim_func([placeholder, topi.tile(placeholder, repeats)]))
    space = space_for(task, BOARD.hardware)
    function = scheduled_function(space.apply(space.candidate(space.sample(random.Random(0)), "random")))
    wanted = np.tile(x, repeats)
    np.testing.assert_array_equal(run(function, x, wanted.shape, tmp_path), wanted)


@pytest.mark.parametrize("rows", [24, 61])
@pytest.mark.parametrize(
    "row",
    [lambda i: i % 4, lambda i: (i + 3) % 4, lambda i: i * 3 % 8, lambda i: (i * 2 + 1) % 8, lambda i: i % 6],
    ids=["period of 4", "begins within", "every third of 8", "every second, shifted", "no power of two"],
)
def test_rows_read_again(row: Callable[[Any], Any], rows: int, tmp_path: Path) -> None:
    x = np.random.default_rng(0).random((8, 5), np.float32)
    placeholder = te.placeholder(x.shape, "float32", name="x")
    read = te.compute((rows, COLUMNS), lambda i, j: placeholder[row(i), j % 5], name="read")
    schedule = s_tir.Schedule(te.create_prim_func([placeholder, read]))
    wanted = np.array([[x[row(i), j % 5] for j in range(COLUMNS)] for i in range(rows)])
    np.testing.assert_array_equal(run(schedule.mod["main"], x, wanted.shape, tmp_path), wanted)


def test_a_function_with_periodic_loads_is_lowered_once() -> None:
    x = te.placeholder((8, 5), "float32", name="x")
    read = te.compute((24, COLUMNS), lambda i, j: x[i % 4, j % 5], name="read")
    function = te.create_prim_func([x, read])
    passes: list[str] = []

    @tvm.ir.instrument.pass_instrument
    class Names:
        def run_before_pass(self, _: tvm.IRModule, info: Any) -> None:
            passes.append(info.name)

    with tvm.transform.PassContext(instruments=[Names()]):
        lowered = lower_function(function, "kernel", tvm.target.Target(BOARD.tvm_target))
    assert not any(map(has_periodic_loads, lowered.functions.values()))
    assert passes.count("tirx.UnrollLoop") == passes.count("tirx.CommonSubexprElim") == 1
