"""Extremes of floats are of all numbers, infinities and NaN included, whatever the program."""

from __future__ import annotations

import platform
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax, te
from tvm.s_tir.meta_schedule.arg_info import ArgInfo

from host.build import build_kernel_library
from host.build.kernel import lower_function
from host.lowering import lower
from host.model import LoweredModel
from host.schedules.families import space_for
from host.tensor_ir.extremes import EXTREMES_OF_ALL, EXTREMES_OF_WINDOWS
from targets import Board
from tests.unit.lowering.harness import board, imported, largest_of_windows, relax_module

TARGET = tvm.target.Target({"kind": "llvm", "mtriple": f"{platform.machine()}-linux-gnu"})


def given(shape: tuple[int, ...], largest: bool) -> list[np.ndarray]:
    """Numbers, the same with NaN among them, and nothing but the infinity that every number beats."""
    numbers = np.random.default_rng(len(shape)).standard_normal(shape, np.float32)
    some = numbers.copy()
    some.reshape(-1)[3::37] = np.nan
    return [numbers, some, np.full(shape, -np.inf if largest else np.inf, np.float32)]


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((3, 128), 1), ((3, 100), 1), ((3, 17), 1), ((2, 40, 32), 1)],
    ids=["rows", "rows of no whole vectors", "short rows", "columns"],
)
def test_nan_and_infinities_are_kept(
    shape: tuple[int, ...], axis: int, largest: bool, tmp_path: Path
) -> None:
    operator, numpy = (relax.op.max, np.max) if largest else (relax.op.min, np.min)
    arrays = given(shape, largest)
    own = board()
    model = lower(imported(relax_module(lambda bb, v: operator(v, [axis]), arrays[:1])), own)
    functions = _programs(model, own)
    wanted = [numpy(array, axis=axis) for array in arrays]
    _compare(functions, arrays, wanted, tmp_path)


def _programs(model: LoweredModel, own: Board) -> dict[str, tvm.tirx.PrimFunc]:
    """The one function of a model as it is written, and four programs of it."""
    [task] = model.tasks
    space = space_for(task, own.hardware)
    generator = random.Random(0)
    functions = {"default": task.function}
    for number in range(4):
        candidate = space.candidate(space.sample(generator), "test")
        functions[f"program_{number}"] = space.apply(candidate).mod["main"]
    return functions


def _compare(
    functions: Mapping[str, tvm.tirx.PrimFunc],
    arrays: Sequence[np.ndarray],
    wanted: Sequence[np.ndarray],
    folder: Path,
) -> None:
    """What each program makes of each array, beside what is wanted, to the last bit."""
    path = build_kernel_library(functions, folder / "programs.so", TARGET)
    library = tvm.runtime.load_module(str(path))
    for name, function in functions.items():
        read, written = (tuple(int(size) for size in one.shape) for one in ArgInfo.from_prim_func(function))
        for array, expected in zip(arrays, wanted, strict=True):
            made = tvm.runtime.empty(written, "float32")
            library[name](tvm.runtime.tensor(array.reshape(read)), made)
            np.testing.assert_array_equal(made.numpy().reshape(expected.shape), expected, err_msg=name)


@pytest.mark.parametrize("channels", [20, 32])
@pytest.mark.parametrize("padding", [0, 1])
def test_windows_keep_infinities(channels: int, padding: int, tmp_path: Path) -> None:
    """With a border around them too, which is less than any number."""
    numbers, _, infinities = given((1, 11, 11, channels), True)
    mixed = numbers.copy()
    mixed[0, :6], mixed[0, 8, 8] = -np.inf, np.inf
    arrays, own = [numbers, mixed, infinities], board()

    def pooled(bb: relax.BlockBuilder, v: relax.Var) -> relax.Expr:
        return relax.op.nn.max_pool2d(v, (3, 3), (2, 2), (padding,) * 4, layout="NHWC")

    model = lower(imported(relax_module(pooled, arrays[:1])), own)
    wanted = [largest_of_windows(array, 3, 2, padding) for array in arrays]
    assert np.isneginf(wanted[1]).any() and np.isposinf(wanted[1]).any()
    _compare(_programs(model, own), arrays, wanted, tmp_path)


@pytest.mark.parametrize("attribute", [EXTREMES_OF_ALL, EXTREMES_OF_WINDOWS])
def test_arm_has_one_instruction_that_keeps_nan(attribute: str) -> None:
    target = tvm.target.Target({"kind": "llvm", "mtriple": "aarch64-linux-gnu"})
    x = te.placeholder((8, 16), "float32", name="x")
    k = te.reduce_axis((0, 8), "k")
    y = te.compute((16,), lambda i: te.max(x[k, i], axis=k), "y")
    function = te.create_prim_func([x, y]).with_attr(attribute, True)
    schedule = tvm.s_tir.Schedule(function)
    columns, rows = schedule.get_loops(schedule.get_sblock("y"))
    schedule.reorder(rows, columns)
    schedule.vectorize(columns)
    lowered = lower_function(schedule.mod["main"], "largest", target)
    text = tvm.get_global_func("target.build.llvm")(lowered, target).inspect_source("asm")
    instructions = {line.split()[0] for line in text.splitlines() if line.startswith("\t")}
    assert "fmax" in instructions and not instructions & {"fmaxnm", "fcmgt", "fcmge", "bsl", "bif", "bit"}
