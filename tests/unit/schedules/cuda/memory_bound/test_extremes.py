"""Extremes of floats and their places on a GPU: of all numbers, infinities and NaN included."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import relax
from tvm.s_tir.meta_schedule.arg_info import ArgInfo

from host.build.cuda.default_schedule import default_schedule_gpu
from host.lowering import lower
from host.schedules import DesignSpace, scheduled_function, space_for
from targets import GpuModel
from targets.nvidia import ORIN_NANO, XAVIER_NX
from tests.cuda_emulator.run import emulate
from tests.scheduling.repetitions import seeds
from tests.unit.lowering.harness import (
    imported,
    largest_of_windows,
    lowered,
    normal,
    relax_module,
    run_lowered,
)
from tests.unit.schedules.cuda.cuda_cases import gpu_board, gpu_target

op = relax.op
# Shapes, whose second axis is reduced, and the rule that takes them.
SHAPES = {
    "rows": ((3, 128), "cuda_rowwise"),
    "rows of no whole vectors": ((3, 100), "cuda_rowwise"),
    "columns": ((3, 40, 32), "cuda_columnwise"),
    "many columns": ((3, 9, 6000), "cuda_tiled"),
}


def _given(shape: tuple[int, ...], largest: bool) -> np.ndarray:
    """Numbers, others with NaN among them, and nothing but the infinity that every number beats."""
    made = normal(*shape)
    made[1].reshape(-1)[3::37] = np.nan
    made[2] = -np.inf if largest else np.inf
    return made


def _space(build: Callable[..., Any], given: np.ndarray, gpu: GpuModel = ORIN_NANO) -> DesignSpace:
    """The programs of the one function that a model has."""
    board = gpu_board(gpu)
    (task,) = lower(imported(relax_module(build, [given])), board).tasks
    return space_for(task, board.hardware)


def _program(space: DesignSpace, seed: int) -> Any:
    values = [space.sample(generator) for generator in [random.Random(0)] for _ in range(seed + 1)][-1]
    return scheduled_function(space.apply(space.candidate(values, "test")))


def _made(
    function: Any, given: np.ndarray, wanted: np.ndarray, folder: Path, gpu: GpuModel = ORIN_NANO
) -> np.ndarray:
    """What a program makes of an input, in the shape of what is wanted."""
    read, written = (tuple(int(size) for size in one.shape) for one in ArgInfo.from_prim_func(function))
    made = np.full(written, 99, wanted.dtype)
    emulate(function, [given.reshape(read), made], gpu_target(gpu), folder)
    return made.reshape(wanted.shape)


@seeds(3)
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("name", SHAPES)
def test_nan_and_infinities_are_kept(name: str, largest: bool, seed: int, tmp_path: Path) -> None:
    (shape, rule), (operator, numpy) = SHAPES[name], (op.max, np.max) if largest else (op.min, np.min)
    given = _given(shape, largest)
    space = _space(lambda bb, x: operator(x, [1]), given)
    assert space.rule.name == rule
    wanted = numpy(given, axis=1)
    found = _made(_program(space, seed), given, wanted, tmp_path)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("largest", [True, False])
def test_default_schedules_keep_them(largest: bool, tmp_path: Path) -> None:
    given, operator, numpy = (
        _given((3, 40), largest),
        op.max if largest else op.min,
        np.max if largest else np.min,
    )
    space = _space(lambda bb, x: operator(x, [1]), given)
    wanted = numpy(given, axis=1)
    function = default_schedule_gpu(space.task.function, "extremes")
    np.testing.assert_array_equal(_made(function, given, wanted, tmp_path), wanted)


@seeds(3)
@pytest.mark.parametrize("gpu", [ORIN_NANO, XAVIER_NX], ids=["max.NaN", "comparisons"])
@pytest.mark.parametrize("padding", [0, 1])
def test_windows_keep_them(padding: int, gpu: GpuModel, seed: int, tmp_path: Path) -> None:
    """With a border around them too, which is less than any number."""
    given = normal(3, 9, 9, 8)
    given[1].reshape(-1)[3::97] = np.nan
    given[2] = -np.inf

    def pooled(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return op.nn.max_pool2d(x, (3, 3), (2, 2), (padding,) * 4, layout="NHWC")

    wanted = largest_of_windows(given, 3, 2, padding)
    program = _program(_space(pooled, given, gpu), seed)
    np.testing.assert_array_equal(_made(program, given, wanted, tmp_path, gpu), wanted)


@pytest.mark.parametrize(
    ("threads", "rows", "vector"),
    [(64, 1, 1), (32, 3, 1), (8, 3, 1), (64, 3, 1), (8, 3, 4), (16, 1, 2), (32, 3, 2)],
)
def test_threads_without_an_element_take_no_part(
    threads: int, rows: int, vector: int, tmp_path: Path
) -> None:
    """Of rows of 40, of which all numbers may be infinite."""
    given = _given((3, 40), True)
    space = _space(lambda bb, x: op.max(x, [1]), given)
    values = {"threads": threads, "rows": rows, "inline": 0, "vector": vector}
    function = scheduled_function(space.apply(space.candidate(values, "test")))
    wanted = given.max(axis=1)
    np.testing.assert_array_equal(_made(function, given, wanted, tmp_path), wanted)


@seeds(3)
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *itertools.product(SHAPES, ["float32", "int8", "uint8", "int32"]),
        *itertools.product([name for name in SHAPES if "rows" in name], ["float64", "int64", "uint64"]),
    ],
)
def test_places(name: str, dtype: str, seed: int, tmp_path: Path) -> None:
    (shape, rule), largest = SHAPES[name], dtype != "int8"
    if dtype.startswith("float"):
        given = _given(shape, largest).astype(dtype)
    else:
        ends = np.iinfo(dtype)
        given = np.random.default_rng(0).integers(ends.min, ends.max, shape, dtype, endpoint=True)
        given[0] = ends.min if largest else ends.max
    operator, numpy = (op.argmax, np.argmax) if largest else (op.argmin, np.argmin)
    space = _space(lambda bb, x: operator(x, 1), given)
    assert space.rule.name == rule
    wanted = numpy(given, axis=1)
    np.testing.assert_array_equal(_made(_program(space, seed), given, wanted, tmp_path), wanted)


@pytest.mark.parametrize("vector", [1, 4])
def test_relu_and_clip_of_nan_are_nan(vector: int, tmp_path: Path) -> None:
    given = normal(8, 64)
    given[::2, ::3] = np.nan
    given[1, :4] = [np.inf, -np.inf, 0.0, -0.0]
    space = _space(lambda bb, x: op.multiply(op.clip(x, -0.5, 1.5), op.nn.relu(x)), given)
    values = {"threads": 32, "vector": vector}
    function = scheduled_function(space.apply(space.candidate(values, "test")))
    with np.errstate(invalid="ignore"):
        wanted = np.clip(given, -0.5, 1.5) * np.maximum(given, 0)
    np.testing.assert_array_equal(_made(function, given, wanted, tmp_path), wanted)


@pytest.mark.parametrize("bound", [1e30, 3.4e38])
def test_far_bounds_keep_nan(bound: float, tmp_path: Path) -> None:
    given = normal(2, 64)
    given[0, ::3] = np.nan
    given[1, :2] = np.inf, -np.inf
    space = _space(lambda bb, x: op.clip(x, -bound, bound), given)
    function = scheduled_function(space.apply(space.candidate({"threads": 32, "vector": 4}, "test")))
    wanted = np.clip(given, -np.float32(bound), np.float32(bound))
    np.testing.assert_array_equal(_made(function, given, wanted, tmp_path), wanted)


@seeds(3)
def test_softmax_of_masked_rows_is_that_of_a_processor(seed: int, tmp_path: Path) -> None:
    """Rows that are masked by minus infinity, by the smallest number, in part, and one with NaN."""
    given = normal(6, 96)
    given[1], given[2] = -np.inf, np.finfo("float32").min
    given[3, ::2], given[4, 5:] = -np.inf, np.finfo("float32").min
    given[5, 7] = np.nan

    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return op.nn.softmax(x, -1)

    (wanted,) = run_lowered(lowered(build, [given]), [given])
    assert np.isfinite(wanted[[0, 2, 3, 4]]).all() and np.isnan(wanted[5]).all()
    found = _made(_program(_space(build, given), seed), given, wanted, tmp_path)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)
