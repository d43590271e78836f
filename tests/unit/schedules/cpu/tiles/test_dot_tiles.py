"""Products in registers of matrices: whatever the decisions the sums are right, and the estimate decides."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from host.dynamic.kernels import kernel_over
from host.dynamic.request import Dimension
from host.dynamic.template import unify
from host.gensor import Gensor
from host.lowering.types import BFLOAT16
from host.model import DeviceProfile, Task
from host.schedules import DesignSpace, scheduled_function, space_for
from host.schedules.cpu.dot.intrinsics import INSTRUCTION, TILES
from tests.unit.schedules.cpu import bfloat16_cases, dot_cases
from tests.unit.schedules.cpu.tiles import tile_cases as cases

BYTES: dict[str, Callable[[], Task]] = {
    "rows that nothing divides": lambda: dot_cases.dense_task(23, 48, 40, 16),
    "prime rows": lambda: dot_cases.dense_task(197, 32, 16, 16),
    "two rows": lambda: dot_cases.dense_task(2, 64, 128, 16),
    "several registers high": lambda: dot_cases.dense_task(96, 64, 192, 16),
    "steps of a sum that do not divide": lambda: dot_cases.dense_task(30, 32, 4 * 17, 16),
    "convolution": lambda: dot_cases.convolution_task(9, 8, 32, 16),
    "lines of an image in one register": lambda: dot_cases.convolution_task(7, 32, 32, 16),
    "convolution of many channels": lambda: dot_cases.convolution_task(7, 64, 64, 16),
}
# Task, columns and step of the window.
NUMBERS: dict[str, tuple[Callable[[], Task], int, int]] = {
    "dense": (lambda: bfloat16_cases.dense_task(49, 64, 128), 64, 1),
    "rounded first": (lambda: bfloat16_cases.dense_task(23, 48, 40, stored=False), 48, 1),
    "columns beside": (lambda: bfloat16_cases.dense_task(23, 40, 40), 40, 1),
    "window of steps": (lambda: bfloat16_cases.convolution_task(14, 34, 48, stride=2), 48, 2),
}
_PROGRAMS = 4


def programs(space: DesignSpace, seed: int) -> Iterator[dict[str, int]]:
    """Random programs with tiles."""
    generator = random.Random(seed)
    found = 0
    for _ in range(20000):
        values = {decision.name: generator.choice(decision.choices) for decision in space.decisions}
        values |= {"intrinsic": TILES, "window": 0, "unroll": 1}
        values |= {"parallel": space.threads} if "parallel" in values else {}
        if space.legal(values):
            yield values
            found += 1
            if found == _PROGRAMS:
                return
    raise AssertionError("hardly any program is legal")


def chosen(task: Task, hardware_without: bool = False) -> dict[str, int]:
    """The decisions of Gensor's first program."""
    board = cases.board()
    hardware = replace(board.hardware, matrix_tiles=None) if hardware_without else board.hardware
    space = space_for(task, hardware)
    (candidate,) = Gensor().propose(space, DeviceProfile("device", board, hardware, 1), (), 1, seed=0)
    return {name: int(value) for name, value in candidate.decisions if isinstance(value, int)}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", BYTES)
def test_sums_of_bytes_are_exact(name: str, threads: int) -> None:
    task = BYTES[name]()
    space = space_for(task, cases.board().hardware, threads)
    given = dot_cases.arguments(task)
    wanted, ran = dot_cases.expected(task, given), 0
    for values in programs(space, threads):
        scheduled = scheduled_function(space.apply(space.candidate(values, "random")))
        found = cases.run(scheduled, given)
        if found is not None:
            ran += 1
            np.testing.assert_array_equal(found, wanted, err_msg=str(values))
    cases.skip_where_nothing_ran(ran)


@pytest.mark.parametrize("name", NUMBERS)
def test_sums_of_bfloat16_are_those_of_single_precision(name: str) -> None:
    make, columns, stride = NUMBERS[name]
    task = make()
    space = space_for(task, cases.board().hardware)
    given = bfloat16_cases.arguments(task)
    wanted, ran = bfloat16_cases.expected(given, columns, stride), 0
    for values in programs(space, 3):
        scheduled = scheduled_function(space.apply(space.candidate(values, "random")))
        found = cases.run(scheduled, [*given, np.zeros(wanted.shape, ml_dtypes.bfloat16)])
        if found is not None:
            ran += 1
            # A result is rounded to 8 bits, sums of products to 24.
            close = np.abs(found.astype(np.float64) - wanted)
            assert (close <= np.abs(wanted) / 128 + 1e-3).all(), values
    cases.skip_where_nothing_ran(ran)


def test_registers_are_configured_once_for_all_tiles_of_a_thread() -> None:
    task = dot_cases.dense_task(64, 64, 256, 16)
    space = space_for(task, cases.board().hardware)
    values = {decision.name: decision.choices[0] for decision in space.decisions}
    values |= {"intrinsic": TILES, "rows": 32, "vectors": 2}
    code = cases.assembly(scheduled_function(space.apply(space.candidate(values, "test"))))
    assert code.count("\tldtilecfg\t") == 1 and code.count("\ttilerelease") == 1
    assert code.count("\ttdpbusd\t") >= 4 and "vpdpbusd" not in code
    assert code.count("\tsyscall") == 1
    # A tile at the end that is not full has registers of fewer rows.
    task = dot_cases.dense_task(53, 64, 256, 16)
    space = space_for(task, cases.board().hardware)
    code = cases.assembly(scheduled_function(space.apply(space.candidate({**values, "rows": 16}, "test"))))
    assert code.count("\tldtilecfg\t") > 1


def test_weights_of_the_next_panels_are_fetched_where_few_tiles_use_them() -> None:
    task = dot_cases.dense_task(49, 512, 2048, 16)
    values = chosen(task)
    assert values["fetch"] == 1
    space = space_for(task, cases.board().hardware)
    for fetch in (0, 1):
        one = space.candidate({**values, "fetch": fetch}, "test")
        assert ("\tprefetch" in cases.assembly(scheduled_function(space.apply(one)))) == bool(fetch)
    assert not space.legal({**values, "fetch": 1, "intrinsic": INSTRUCTION, "rows": 7})
    assert chosen(dot_cases.dense_task(784, 128, 512, 16))["fetch"] == 0


@pytest.mark.parametrize("kind", ["bytes", BFLOAT16])
def test_the_estimate_takes_tiles_for_many_rows(kind: str) -> None:
    bytes_ = kind == "bytes"
    task = dot_cases.dense_task(196, 256, 1024, 16) if bytes_ else bfloat16_cases.dense_task(196, 256, 1024)
    values = chosen(task)
    assert values["intrinsic"] == TILES
    space = space_for(task, cases.board().hardware)
    vectors = chosen(task, hardware_without=True)
    assert vectors["intrinsic"] == INSTRUCTION
    assert space.estimate_s(vectors) > 2 * space.estimate_s(values)


@pytest.mark.parametrize("threads", [1, 2])
def test_registers_go_on_from_line_to_line_of_a_small_image(threads: int) -> None:
    """Lines of 7 rows with borders, 9 apart: four registers of 15 and 16 rows, and not seven of 7."""
    task = dot_cases.convolution_task(7, 512, 512, 16)
    hardware = cases.board(cores=2).hardware
    space = space_for(task, hardware, threads)
    profile = DeviceProfile("device", cases.board(cores=2), hardware, threads)
    (candidate,) = Gensor().propose(space, profile, (), 1, seed=0)
    values = dict(candidate.decisions)
    assert (values["rows"], values["rows2"], values["intrinsic"]) == (7, 7, TILES)
    code = cases.assembly(scheduled_function(space.apply(candidate)))
    assert code.count("\ttilestored\t") == 4


def test_one_row_is_left_to_vectors() -> None:
    task = dot_cases.dense_task(1, 1024, 2048, 16)
    assert chosen(task)["intrinsic"] == INSTRUCTION
    # From memory, the products of few rows take as long as their weights.
    two = dot_cases.dense_task(2, 4096, 2048, 16)
    space = space_for(two, cases.board().hardware)
    assert space.estimate_s(chosen(two)) < 1.2 * space.estimate_s(chosen(two, hardware_without=True))


def test_only_a_processor_with_the_product_has_the_choice() -> None:
    task = dot_cases.dense_task(32, 64, 64, 16)

    def choices(hardware_of: dict[str, object]) -> tuple[int, ...]:
        space = space_for(task, cases.board(**hardware_of).hardware)  # type: ignore[arg-type]
        return {decision.name: decision.choices for decision in space.decisions}["intrinsic"]

    assert TILES in choices({})
    assert TILES not in choices({"without": ("amx_int8",)})
    assert TILES not in choices({"without": ("amx_tile",)})
    narrow = cases.board(restrict="avx2").hardware
    assert narrow.matrix_tiles is None and narrow.vector_bits == 256
    half = space_for(dot_cases.dense_task(32, 24, 64, 8), cases.board().hardware)
    assert TILES not in {decision.name: decision.choices for decision in half.decisions}["intrinsic"]


def test_a_process_that_has_not_asked_linux_gets_the_registers(tmp_path: Path) -> None:
    """The program asks itself: without, the first instruction would end the process."""
    task = dot_cases.dense_task(32, 32, 64, 16)
    space = space_for(task, cases.board().hardware)
    values = {decision.name: decision.choices[0] for decision in space.decisions}
    values |= {"intrinsic": TILES, "rows": 16}
    scheduled = scheduled_function(space.apply(space.candidate(values, "test")))
    library = cases.library(scheduled, tmp_path)
    cases.skip_where_nothing_ran(cases.runs_here())
    given = dot_cases.arguments(task)
    np.savez(tmp_path / "given.npz", *given, wanted=dot_cases.expected(task, given))
    done = subprocess.run(
        [sys.executable, "-c", _PROCESS, str(library), str(tmp_path / "given.npz")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[0, 262144] equal"), done.stderr


# Linux's numbers: ARCH_GET_XCOMP_PERM gives the states that a process may use, the tiles' is 18.
_PROCESS = """
import ctypes, sys
import numpy as np
import tvm

def may() -> int:
    states = ctypes.c_uint64()
    ctypes.CDLL(None).syscall(158, 0x1022, ctypes.byref(states))
    return states.value & 1 << 18

before = may()
given = np.load(sys.argv[2])
tensors = [tvm.runtime.tensor(given[f"arr_{n}"]) for n in range(len(given.files) - 1)]
tvm.runtime.load_module(sys.argv[1])["kernel"](*tensors)
same = np.array_equal(tensors[-1].numpy(), given["wanted"])
print([before, may()], "equal" if same else "different")
"""


def test_programs_for_any_length_leave_the_registers_alone() -> None:
    """A register has the rows that it was configured for, and the last tile of another length has others."""
    board = cases.board()
    template = unify({n: dot_cases.dense_task(n, 64, 512, 16).function for n in (37, 61, 101, 157)}, "dense")
    profile = DeviceProfile("device", board, board.hardware, 1)
    kernel = kernel_over("dense", template, Dimension("n", 1, 512, {}), profile, 0)
    assert kernel.rule == "dot", kernel.reason
    assert dict(kernel.decisions or {})["intrinsic"] == INSTRUCTION
