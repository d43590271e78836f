"""Convolutions of each channel by itself on a GPU: right results, wide accesses, no spills."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from host.schedules import DesignSpace, scheduled_function, space_for
from host.schedules.cuda.depthwise.window import window_of
from targets.nvidia import XAVIER_NX
from tests.cuda_emulator.run import emulate
from tests.unit.schedules import functions as fn
from tests.unit.schedules.cuda.cuda_cases import Case, gpu_board, gpu_target
from tests.unit.schedules.cuda.depthwise_cases import Shape, of_bytes, of_halves

HALVES: dict[str, Callable[[], Case]] = {
    "3x3": lambda: of_halves(Shape((9, 10), 24)),
    "stride 2": lambda: of_halves(Shape((11, 9), 16, stride=2)),
    "5x5": lambda: of_halves(Shape((7, 8), 8, (5, 5), pad=2)),
    "distant taps": lambda: of_halves(Shape((9, 9), 8, distance=2, pad=2, images=2)),
    "one direction": lambda: of_halves(Shape((1, 33), 16, (1, 7), pad=0)),
    "fours": lambda: of_halves(Shape((6, 6), 12)),
}
BYTES: dict[str, Callable[[], Case]] = {
    "3x3": lambda: of_bytes(Shape((9, 10), 48)),
    "without sign, stride 2": lambda: of_bytes(Shape((11, 9), 32, stride=2), "uint8", 130),
    "5x5": lambda: of_bytes(Shape((7, 8), 16, (5, 5), pad=2)),
    "distant taps": lambda: of_bytes(Shape((9, 9), 8, distance=2, pad=2, images=2), fill=-3),
    "fours": lambda: of_bytes(Shape((6, 6), 12)),
}


def _space(function: object) -> DesignSpace:
    space = space_for(fn.task(function), gpu_board().hardware)
    assert space.rule.name == "cuda_depthwise"
    return space


def _computed(case: Case, space: DesignSpace, values: dict[str, int], folder: Path) -> tuple[np.ndarray, str]:
    function = scheduled_function(space.apply(space.candidate(values, "random")))
    made = np.zeros(case.output.shape, case.output.dtype)
    done = emulate(function, [*case.inputs, made], gpu_target(), folder)
    (resources,) = done.kernel.resources
    assert not resources.spills, values
    assert not resources.stack_bytes, values
    assert resources.shared_bytes == 0
    return made, done.kernel.module.inspect_source("cuda")


@pytest.mark.parametrize(("name", "single"), [*((name, 0) for name in HALVES), ("3x3", 1)])
def test_a_random_program_of_halves_computes_the_task(name: str, single: int, tmp_path: Path) -> None:
    """Sums of up to nine taps in halves are off by some units of the last place."""
    case = HALVES[name]()
    space, generator = _space(case.function), random.Random(name)
    values = space.sample(generator, 50_000)
    while values["single"] != single:
        values = space.sample(generator, 50_000)
    made, source = _computed(case, space, values, tmp_path)
    assert ("fma.rn.f16x2" in source) == (not single)
    off = 2e-3 if single else 2e-2
    wanted = case.output.astype("float64")
    np.testing.assert_allclose(made.astype("float64"), wanted, rtol=1e-3, atol=off, err_msg=str(values))


@pytest.mark.parametrize("name", BYTES)
def test_a_random_program_of_bytes_computes_the_task(name: str, tmp_path: Path) -> None:
    """To the last bit."""
    case = BYTES[name]()
    space, generator = _space(case.function), random.Random(name)
    values = space.sample(generator, 50_000)
    made, source = _computed(case, space, values, tmp_path)
    assert "dp4a" in source
    np.testing.assert_array_equal(made, case.output, err_msg=str(values))


def test_what_the_rule_leaves_to_others() -> None:
    """Channels that are no neighbours, in twos of bytes, or in single precision."""
    hardware = gpu_board().hardware
    odd = of_bytes(Shape((6, 6), 10))
    for function in (odd.function, fn.depthwise(12, 24, 1)):
        assert space_for(fn.task(function), hardware).rule.name == "cuda_tiled"


def test_widest_programs_load_16_bytes() -> None:
    for case in (of_halves(Shape((9, 10), 24)), of_bytes(Shape((9, 10), 48))):
        window = window_of(_space(case.function).workload)
        assert window is not None
        assert window.width * window.image.element_bytes == 16
        assert window.rows.places(2)[-1] == (3, 1, 2)


def test_sums_in_halves_have_to_gain() -> None:
    """Memory bounds a window of nine taps: its sums stay in single precision."""
    space = _space(of_halves(Shape((56, 56), 64)).function)
    best = {"width": 8, "rows": 4, "cols": 4, "threads": 128}
    single, halves = (space.estimate_s({**best, "single": number}) for number in (1, 0))
    assert single < halves < 1.02 * single


def test_xavier_has_the_instructions() -> None:
    """Half2 and dp4a are older than tensor cores' ldmatrix."""
    task = fn.task(of_bytes(Shape((9, 10), 48)).function)
    assert space_for(task, gpu_board(XAVIER_NX).hardware).rule.name == "cuda_depthwise"
