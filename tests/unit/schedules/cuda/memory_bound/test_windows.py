"""Pooling on a GPU: extremes and means over windows, several channels to a thread."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx

from benchmarks.gpu.machine_code import opcodes_of, widths
from host.gensor import Gensor
from host.model import DeviceProfile
from host.schedules import DesignSpace, scheduled_function, space_for
from host.tensor_ir.extremes import EXTREMES_OF_WINDOWS
from targets import GpuModel
from targets.nvidia import AGX_THOR, ORIN_NANO, XAVIER_NX
from tests.cuda_emulator.run import Emulated, emulate
from tests.scheduling.repetitions import seeds
from tests.unit.schedules import functions as fn
from tests.unit.schedules.cuda.cuda_cases import Case, gpu_board, gpu_target


@dataclass(frozen=True)
class _Window:
    """Of a pooling with sides of the same kind: its size, steps, padding, and places between taps."""

    size: int
    step: int = 1
    padding: int = 0
    distance: int = 1

    def results(self, size: int) -> int:
        """Results along a side of an image."""
        return (size + 2 * self.padding - (self.size - 1) * self.distance - 1) // self.step + 1


def _pooling(
    shape: tuple[int, ...],
    window: _Window,
    kind: str = "max",
    dtype: str = "float16",
    relu: bool = False,
    least: float | None = None,
) -> Case:
    """Of an image that is widened, filled up around, pooled, and rounded, as lowering makes it."""
    images, height, width, channels = shape
    wide = dtype if dtype.endswith("int8") else "float32"
    if least is None:
        least = np.iinfo(dtype).min if dtype.endswith("int8") else -np.inf
    around, padding = (least if kind == "max" else 0), window.padding
    a = te.placeholder(shape, dtype, "A")
    first = te.compute(shape, lambda *i: a(*i).astype(wide), name="wide") if wide != dtype else a

    def filled(n: Any, y: Any, x: Any, c: Any) -> Any:
        inside = tirx.all(y >= padding, y < height + padding, x >= padding, x < width + padding)
        element = first[n, y - padding, x - padding, c]
        return tirx.if_then_else(inside, element, tirx.const(around, wide))

    whole = (images, height + 2 * padding, width + 2 * padding, channels)
    padded = te.compute(whole, filled, name="pad_temp") if padding else first
    kh, kw = (te.reduce_axis((0, window.size), name) for name in ("kh", "kw"))
    made = (images, window.results(height), window.results(width), channels)
    combine = te.max if kind == "max" else te.sum

    def element(n: Any, y: Any, x: Any, c: Any) -> Any:
        places = (y * window.step + kh * window.distance, x * window.step + kw * window.distance)
        return combine(padded[n, places[0], places[1], c], axis=[kh, kw])

    pooled = te.compute(made, element, name=kind)
    share = 1.0 if kind == "max" else 1.0 / window.size**2

    def end(*i: Any) -> Any:
        value = pooled(*i) if kind == "max" else pooled(*i) * tirx.const(share, wide)
        return (te.max(value, tirx.const(0, wide)) if relu else value).astype(dtype)

    function = te.create_prim_func([a, te.compute(made, end, name="end")])
    given = np.random.default_rng(3).standard_normal(shape)
    given = (given * 40).astype(dtype) if dtype.endswith("int8") else given.astype(dtype)
    sides = ((0, 0), (padding, padding), (padding, padding), (0, 0))
    image = np.pad(given.astype("float64"), sides, constant_values=around)
    parts = [
        image[:, y : y + made[1] * window.step : window.step, x : x + made[2] * window.step : window.step]
        for y in range(0, window.size * window.distance, window.distance)
        for x in range(0, window.size * window.distance, window.distance)
    ]
    parts = [part[:, : made[1], : made[2]] for part in parts]
    wanted = np.max(parts, axis=0) if kind == "max" else np.sum(parts, axis=0) * share
    wanted = np.maximum(wanted, 0) if relu else wanted
    return Case(function.with_attr(EXTREMES_OF_WINDOWS, True), (given,), wanted.astype(dtype))


CASES: dict[str, Callable[[], Case]] = {
    "first pooling of a ResNet": lambda: _pooling((1, 15, 14, 16), _Window(3, 2, 1)),
    "a detector's, with steps of one": lambda: _pooling((1, 7, 7, 24), _Window(5, 1, 2)),
    "halves of a side": lambda: _pooling((2, 8, 10, 8), _Window(2, 2)),
    "a window of more rows than are written out": lambda: _pooling((1, 12, 11, 8), _Window(9, 1, 4)),
    "taps that lie apart": lambda: _pooling((1, 9, 9, 8), _Window(3, 1, 2, 2)),
    "single precision": lambda: _pooling((1, 9, 8, 12), _Window(3, 2, 1), dtype="float32"),
    "bytes": lambda: _pooling((1, 8, 9, 16), _Window(3, 2, 1), dtype="int8"),
    "bytes without a sign": lambda: _pooling((1, 6, 6, 4), _Window(2, 2), dtype="uint8"),
    "six channels": lambda: _pooling((1, 9, 9, 6), _Window(3, 2, 1)),
    "means": lambda: _pooling((1, 9, 10, 16), _Window(3, 1, 1), "sum"),
    "means that follow each other": lambda: _pooling((1, 8, 8, 32), _Window(2, 2), "sum", "float32"),
    "with an activation": lambda: _pooling((1, 7, 7, 8), _Window(3, 2, 1), relu=True),
}


def _space(case: Case, gpu: GpuModel = ORIN_NANO) -> DesignSpace:
    return space_for(fn.task(case.function), gpu_board(gpu).hardware)


def _run(case: Case, values: dict[str, int], folder: Path, gpu: GpuModel = ORIN_NANO) -> Emulated:
    space = _space(case, gpu)
    assert space.rule.name == "cuda_windows"
    assert space.legal(values)
    made = np.full(case.output.shape, 99, case.output.dtype)
    function = scheduled_function(space.apply(space.candidate(values, "test")))
    done = emulate(function, [*case.inputs, made], gpu_target(gpu), folder)
    np.testing.assert_allclose(made, case.output, rtol=2e-3, atol=2e-3, err_msg=str(values))
    assert not any(one.spills for one in done.kernel.resources), values
    return done


@seeds(3)
@pytest.mark.parametrize("name", CASES)
def test_random_programs_compute_the_task(name: str, seed: int, tmp_path: Path) -> None:
    case = CASES[name]()
    space, generator = _space(case), random.Random(name)
    _run(case, [space.sample(generator) for _ in range(seed + 1)][-1], tmp_path)


def test_tiles_that_no_side_divides(tmp_path: Path) -> None:
    """Results beyond the last row and column are neither stored nor read."""
    case = CASES["a detector's, with steps of one"]()
    _run(case, {"width": 4, "rows": 2, "cols": 2, "threads": 32}, tmp_path)


def test_xavier_has_programs_too(tmp_path: Path) -> None:
    case = CASES["halves of a side"]()
    _run(case, {"width": 8, "rows": 2, "cols": 2, "threads": 32}, tmp_path, XAVIER_NX)


def test_the_least_of_all_numbers_and_what_is_none_are_kept(tmp_path: Path) -> None:
    """Windows of infinities alone, and with NaN."""
    case = _pooling((1, 4, 8, 8), _Window(2, 2))
    image = np.full((1, 4, 8, 8), -np.inf, "float16")
    image[0, 0, 2, 3], image[0, 3, 7, 1] = np.nan, 5
    wanted = image.reshape(1, 2, 2, 4, 2, 8).max((2, 4))
    _run(Case(case.function, (image,), wanted), {"width": 8, "rows": 1, "cols": 2, "threads": 32}, tmp_path)


def test_neighbouring_channels_are_loaded_and_stored_at_once(tmp_path: Path) -> None:
    """By the machine code: 16 bytes, where a channel took a load of two bytes for each of its taps."""
    case = CASES["first pooling of a ResNet"]()
    done = _run(case, {"width": 8, "rows": 1, "cols": 2, "threads": 32}, tmp_path)
    (opcodes,) = opcodes_of(done.kernel.cubin.content).values()
    # Three rows of five places, and two results.
    assert widths(Counter(opcodes)) == {"16": 17}


@pytest.mark.parametrize("gpu", [ORIN_NANO, AGX_THOR, XAVIER_NX], ids=lambda gpu: gpu.arch)
@pytest.mark.parametrize("window", [_Window(3, 2, 1), _Window(5, 1, 2)], ids=lambda one: str(one.size))
def test_pooling_takes_hardly_longer_than_to_move_the_image(gpu: GpuModel, window: _Window) -> None:
    """ResNet-50's took an Orin Nano 71 us and a thread for each channel, 30 of them memory (estimates)."""
    size, board = (112, gpu_board(gpu)) if window.step == 2 else (40, gpu_board(gpu))
    case = _pooling((1, size, size, 64), window)
    space = _space(case, gpu)
    (found,) = Gensor().propose(space, DeviceProfile("gpu", board, board.hardware, 1), (), 1, seed=0)
    moved = 2 * (case.inputs[0].size + case.output.size)
    memory_s = moved / gpu.level("DRAM").bandwidth_bytes_per_s
    assert memory_s + gpu.launch_s < found.estimate_s < 1.6 * memory_s + 1.1 * gpu.launch_s
    generator = random.Random(0)
    best = min(space.estimate_s(space.sample(generator)) for _ in range(256))
    assert best / found.estimate_s >= 0.995


def test_reductions_of_another_kind_are_left_to_other_rules() -> None:
    for function in (
        fn.dense(1, 64, 512),
        fn.depthwise(6, 24, 1),
        fn.softmax(2, 5, 37),
        fn.lowered_mean(10, 7, 7),
        _pooling((1, 8, 8, 5), _Window(2, 2)).function,
        # No half is what stands around.
        _pooling((1, 8, 8, 8), _Window(3, 2, 1), least=float(np.finfo("float32").min)).function,
    ):
        assert space_for(fn.task(function), gpu_board().hardware).rule.name != "cuda_windows"
