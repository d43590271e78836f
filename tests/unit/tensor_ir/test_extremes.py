"""Extremes of floats are of all numbers, infinities and NaN included, whatever the program."""

from __future__ import annotations

import platform
import random
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.s_tir.meta_schedule.arg_info import ArgInfo

from host.build import build_kernel_library
from host.lowering import lower
from host.schedules.families import space_for
from tests.unit.lowering.harness import board, imported, relax_module

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
    [task] = model.tasks
    space = space_for(task, own.hardware)
    generator = random.Random(0)
    functions = {"default": task.function}
    for number in range(4):
        candidate = space.candidate(space.sample(generator), "test")
        functions[f"program_{number}"] = space.apply(candidate).mod["main"]
    path = build_kernel_library(functions, tmp_path / "programs.so", TARGET)
    library = tvm.runtime.load_module(str(path))
    read, written = (tuple(int(size) for size in one.shape) for one in ArgInfo.from_prim_func(task.function))
    for name in functions:
        for array in arrays:
            made = tvm.runtime.empty(written, "float32")
            library[name](tvm.runtime.tensor(array.reshape(read)), made)
            wanted = numpy(array, axis=axis)
            np.testing.assert_array_equal(made.numpy().reshape(wanted.shape), wanted)
