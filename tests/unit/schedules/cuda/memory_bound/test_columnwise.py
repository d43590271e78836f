"""Reductions along columns on a GPU: means and extremes over the positions of an image."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx

from benchmarks.gpu.machine_code import opcodes_of, widths
from host.gensor import Gensor
from host.model import DeviceProfile
from host.schedules import DesignSpace, scheduled_function, space_for
from targets import GpuModel
from targets.nvidia import AGX_THOR, ORIN_NANO, XAVIER_NX
from tests.cuda_emulator.run import Emulated, emulate
from tests.scheduling.repetitions import seeds
from tests.unit.schedules import functions as fn
from tests.unit.schedules.cuda.cuda_cases import Case, gpu_board, gpu_target

_GENERATOR = np.random.default_rng(0)
_REDUCED: dict[str, tuple[Callable[..., Any], Callable[..., np.ndarray]]] = {
    "sum": (te.sum, np.sum),
    "greatest": (te.max, np.max),
    "least": (te.min, np.min),
}


def _over_positions(
    shape: tuple[int, ...], kind: str = "sum", dtype: str = "float32", squares: bool = False
) -> Case:
    """A number for each image and channel, of all positions; a channel's is scaled behind the reduction."""
    images, height, width, channels = shape
    a, scale = te.placeholder(shape, dtype, "A"), te.placeholder((channels,), "float32", "S")
    h, w = te.reduce_axis((0, height), "h"), te.reduce_axis((0, width), "w")
    wide = te.compute(shape, lambda *i: a(*i).astype("float32"), name="wide")
    reduce, of_numpy = _REDUCED[kind]

    def element(n: tirx.Var, c: tirx.Var) -> tirx.PrimExpr:
        one = wide[n, h, w, c]
        return reduce(one * one if squares else one, axis=[h, w])

    total = te.compute((images, channels), element, name="total")
    made = te.compute(
        (images, 1, 1, channels),
        lambda n, y, x, c: (total[n, c] * scale[c]).astype(dtype),
        name="scaled",
    )
    given, factor = _GENERATOR.normal(size=shape).astype(dtype), _GENERATOR.normal(size=channels)
    exact = given.astype("float64")
    wanted = of_numpy(exact**2 if squares else exact, axis=(1, 2), keepdims=True) * factor
    return Case(
        te.create_prim_func([a, scale, made]), (given, factor.astype("float32")), wanted.astype(dtype)
    )


def _variance(shape: tuple[int, ...]) -> Case:
    """The mean square of what is left of each channel without its mean."""
    images, height, width, channels = shape
    a, mean = te.placeholder(shape, "float16", "A"), te.placeholder((images, 1, 1, channels), "float32", "M")
    h, w = te.reduce_axis((0, height), "h"), te.reduce_axis((0, width), "w")

    def element(n: tirx.Var, y: tirx.Var, x: tirx.Var, c: tirx.Var) -> tirx.PrimExpr:
        left = a[n, h, w, c].astype("float32") - mean[n, 0, 0, c]
        return te.sum(left * left, axis=[h, w])

    total = te.compute((images, 1, 1, channels), element, name="total")
    share = tirx.const(1.0 / (height * width), "float32")
    made = te.compute(total.shape, lambda *i: total(*i) * share, name="mean")
    given = _GENERATOR.normal(size=shape).astype("float16")
    means = given.astype("float32").mean((1, 2), keepdims=True)
    wanted = ((given.astype("float64") - means) ** 2).mean((1, 2), keepdims=True).astype("float32")
    return Case(te.create_prim_func([a, mean, made]), (given, means), wanted)


CASES = {
    "variances of 24 channels": lambda: _variance((2, 9, 8, 24)),
    "40 channels": lambda: _over_positions((1, 9, 7, 40)),
    "two images of 5 channels": lambda: _over_positions((2, 8, 8, 5)),
    "greatest of 32 channels": lambda: _over_positions((1, 6, 11, 32), "greatest"),
    "least of 64 channels of halves": lambda: _over_positions((1, 6, 11, 64), "least", "float16"),
    "squares of 17 channels": lambda: _over_positions((3, 5, 9, 17), squares=True),
    "halves": lambda: _over_positions((2, 12, 12, 24), dtype="float16"),
}


def _space(case: Case, gpu: GpuModel = ORIN_NANO) -> DesignSpace:
    return space_for(fn.task(case.function), gpu_board(gpu).hardware)


def _check(case: Case, values: dict[str, int], folder: Path) -> Emulated:
    space = _space(case)
    assert space.rule.name == "cuda_columnwise"
    assert space.legal(values)
    made = np.full(case.output.shape, np.nan, case.output.dtype)
    function = scheduled_function(space.apply(space.candidate(values, "test")))
    run = emulate(function, [*case.inputs, made], gpu_target(), folder)
    tolerance = 2e-3 if made.dtype == np.float16 else 1e-4
    np.testing.assert_allclose(made, case.output, rtol=tolerance, atol=tolerance, err_msg=str(values))
    assert not any(one.spills for one in run.kernel.resources)
    assert run.counters.access_conflicts == 0, values
    return run


@seeds(4)
@pytest.mark.parametrize("name", CASES)
def test_random_programs_compute_the_task(name: str, seed: int, tmp_path: Path) -> None:
    case = CASES[name]()
    space, generator = _space(case), random.Random(name)
    values = [space.sample(generator) for _ in range(seed + 1)][-1]
    _check(case, values, tmp_path)


def test_blocks_share_positions(tmp_path: Path) -> None:
    """Of more than there are positions for in the last turn, and of one warp alone."""
    case = CASES["40 channels"]()
    for number, (warps, splits, vector) in enumerate([(8, 8, 1), (1, 64, 2), (1, 1, 4)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        _check(case, {"warps": warps, "splits": splits, "vector": vector}, folder)


@pytest.mark.parametrize(
    ("name", "vector", "wide", "found"),
    [
        ("halves", 8, "16", (1, 2, 4, 8)),
        ("40 channels", 4, "16", (1, 2, 4)),
        ("variances of 24 channels", 8, "16", (1, 2, 4, 8)),
    ],
)
def test_neighbouring_columns_are_loaded_at_once(
    name: str, vector: int, wide: str, found: tuple[int, ...], tmp_path: Path
) -> None:
    """By the machine code; a lane had one column before."""
    case = CASES[name]()
    (choices,) = (one.choices for one in _space(case).decisions if one.name == "vector")
    assert choices == found
    done = _check(case, {"warps": 2, "splits": 1, "vector": vector}, tmp_path)
    (opcodes,) = opcodes_of(done.kernel.cubin.content).values()
    assert widths(Counter(opcodes))[wide] >= 1


def test_columns_that_no_vector_divides_are_taken_one_by_one() -> None:
    for name in ("two images of 5 channels", "squares of 17 channels"):
        (choices,) = (one.choices for one in _space(CASES[name]()).decisions if one.name == "vector")
        assert choices == (1,)


@pytest.mark.parametrize("gpu", [ORIN_NANO, AGX_THOR, XAVIER_NX], ids=lambda gpu: gpu.arch)
def test_a_mean_over_an_image_takes_about_as_long_as_to_read_it(gpu: GpuModel) -> None:
    """The first gate of EfficientNet-B0: a thread for each channel took an Orin Nano 755 us (estimate)."""
    space, board = _space(_over_positions((1, 112, 112, 32), dtype="float16"), gpu), gpu_board(gpu)
    (found,) = Gensor().propose(space, DeviceProfile("gpu", board, board.hardware, 1), (), 1, seed=0)
    read_s = 2 * 112 * 112 * 32 / gpu.level("DRAM").bandwidth_bytes_per_s
    assert read_s + gpu.launch_s < found.estimate_s < 2 * (read_s + 2 * gpu.launch_s)
    choices = itertools.product(*(one.choices for one in space.decisions))
    every = [dict(zip(("warps", "splits", "vector"), one, strict=True)) for one in choices]
    best = min(space.estimate_s(values) for values in every if space.legal(values))
    assert best / found.estimate_s >= 0.995


def test_what_is_read_several_times_is_left_to_other_rules() -> None:
    for function in (
        fn.dense(1, 64, 512),
        fn.convolution(4, 16, 32, 3, 1, 32),
        fn.depthwise(6, 24, 1),
        fn.softmax(2, 5, 37),
    ):
        assert space_for(fn.task(function), gpu_board().hardware).rule.name != "cuda_columnwise"
