"""Programs of bytes with SDOT and the saturating instructions of AArch64, on an emulated board."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import tvm

from host.model import Task
from host.schedules import scheduled_function, space_for
from host.schedules.cpu.dot.intrinsics import INSTRUCTION
from tests.emulation.boards import PROCESSORS, board_of
from tests.emulation.qemu import Call, executable, run
from tests.unit.schedules.cpu import dot_cases
from tests.unit.schedules.cpu.lane_dots_cases import Depthwise
from tests.unit.tensor_ir import test_byte_tables as tables
from tests.unit.tensor_ir import test_saturation as saturation

BOARD = "raspberry_pi_5"
PRODUCTS = {
    "dense": dot_cases.dense_task(23, 48, 64, 4, "int8"),
    "prime rows": dot_cases.dense_task(197, 32, 16, 4, "int8"),
    "one row": dot_cases.dense_task(1, 64, 128, 4, "int8"),
    "convolution": dot_cases.convolution_task(9, 16, 32, 4, "int8"),
}
DEPTHWISE = {
    "3x3": Depthwise(9, 8, 32, 3, dtype="int8"),
    "3x3, stride 2": Depthwise(10, 12, 16, 3, 2, dtype="int8"),
    "5x5": Depthwise(7, 6, 24, 5, dtype="int8"),
    "dilated, quarters of vectors": Depthwise(8, 8, 12, 3, dilation=2, dtype="int8"),
    "no padding": Depthwise(7, 9, 16, 3, padded=False, dtype="int8"),
}


def results(functions: dict[str, tvm.tirx.PrimFunc], calls: list[Call], folder: Path) -> list[np.ndarray]:
    """The last argument of every call."""
    board = board_of(BOARD)
    program = executable(board, functions, folder)
    found = run(program, list(functions), calls, board.architecture, PROCESSORS[BOARD][0])
    return [arguments[-1] for arguments in found]


def test_random_programs_of_dot_products_are_exact(tmp_path: Path) -> None:
    hardware, functions, calls, wanted = board_of(BOARD).hardware, {}, [], []
    for name, task in PRODUCTS.items():
        made: Task = task
        space = space_for(made, hardware)
        assert space.rule.name == "dot"
        for number in range(6):
            values = space.sample(random.Random(number))
            candidate = space.candidate({**values, "intrinsic": INSTRUCTION}, "random")
            functions[f"{name} {number}"] = scheduled_function(space.apply(candidate))
            given = dot_cases.arguments(made)
            calls.append(Call(f"{name} {number}", tuple(given)))
            wanted.append(dot_cases.expected(made, given))
    for call, found, right in zip(calls, results(functions, calls, tmp_path), wanted, strict=True):
        np.testing.assert_array_equal(found, right, err_msg=call.kernel)


def test_random_programs_of_depthwise_convolutions_are_exact(tmp_path: Path) -> None:
    hardware, functions, calls, wanted = board_of(BOARD).hardware, {}, [], []
    for name, case in DEPTHWISE.items():
        space = space_for(case.task(hardware), hardware)
        assert space.rule.name == "lane_dots"
        given, right = case.expected(hardware)
        for number in range(4):
            candidate = space.candidate(space.sample(random.Random(number)), "random")
            functions[f"{name} {number}"] = scheduled_function(space.apply(candidate))
            calls.append(Call(f"{name} {number}", (*given, np.zeros_like(right))))
            wanted.append(right)
    for call, found, right in zip(calls, results(functions, calls, tmp_path), wanted, strict=True):
        np.testing.assert_array_equal(found, right, err_msg=call.kernel)


def test_every_number_is_rounded_to_the_same_byte(tmp_path: Path) -> None:
    functions, calls, wanted = {}, [], []
    for dtype in ("uint8", "int8"):
        limits = np.iinfo(dtype)
        for zero in (0, 7, int(limits.max), int(limits.min)):
            for lanes in (4, 8, 16):
                name = f"{dtype}_{zero}_{lanes}"
                functions[name] = saturation.kernel(zero, dtype, lanes)
                calls.append(Call(name, (saturation.GIVEN, np.zeros(saturation.GIVEN.shape, dtype))))
                wanted.append(saturation.rounded(zero, dtype))
    for call, found, right in zip(calls, results(functions, calls, tmp_path), wanted, strict=True):
        np.testing.assert_array_equal(found, right, err_msg=call.kernel)


def test_every_byte_finds_its_entry_in_a_table(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    given, entries = (draw.permutation(256).astype(np.uint8) for _ in range(2))
    functions, calls = {}, []
    for lanes in (2, 4, 8, 16, 32):
        for dtype in ("uint8", "int8"):
            name = f"{dtype}_{lanes}"
            functions[name] = tables.kernel(lanes, dtype)
            calls.append(Call(name, (given, entries.view(dtype), np.zeros(256, dtype))))
    for call, found in zip(calls, results(functions, calls, tmp_path), strict=True):
        np.testing.assert_array_equal(found.view("uint8"), entries[given], err_msg=call.kernel)
