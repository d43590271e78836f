"""Depthwise convolutions of bytes by dot products: whatever the decisions the sums are exact."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import s_tir

from host.build.kernel import lower_function
from host.gensor import Gensor
from host.model import DeviceProfile
from host.schedules import scheduled_function, space_for
from host.schedules.analysis import analyse
from host.schedules.cpu.lane_dots.cost import lane_dots_seconds
from host.schedules.cpu.lane_dots.rule import LaneDots
from tests.scheduling.repetitions import in_turn
from tests.unit.schedules import functions as fn
from tests.unit.schedules.cpu import dot_cases
from tests.unit.schedules.cpu.lane_dots_cases import Depthwise

CASES = {
    "3x3": Depthwise(9, 8, 32, 3),
    "3x3, stride 2": Depthwise(10, 12, 16, 3, 2),
    "5x5": Depthwise(7, 6, 16, 5),
    "5x5, stride 2, half vectors": Depthwise(11, 8, 24, 5, 2),
    "7x7, quarters of vectors": Depthwise(8, 5, 12, 7),
    "dilated": Depthwise(8, 8, 16, 3, dilation=2),
    "no padding": Depthwise(7, 9, 16, 3, padded=False),
    "one column": Depthwise(6, 1, 16, 3),
    "one row, between large bytes": Depthwise(1, 9, 16, 5, fill=200),
}
BOARD = dot_cases.vnni_board()
needs_vnni = pytest.mark.skipif(not dot_cases.runs_here(BOARD), reason="no AVX-512 VNNI here")


@needs_vnni
@in_turn("name, threads", CASES, [1, 2])
def test_random_programs_compute_the_task(name: str, threads: int) -> None:
    board = dot_cases.vnni_board(threads)
    task = CASES[name].task(board.hardware)
    space = space_for(task, board.hardware, threads)
    assert space.rule.name == "lane_dots"
    given, wanted = CASES[name].expected(board.hardware)
    assert np.ptp(wanted.astype("int64")) > 50
    candidate = space.candidate(space.sample(random.Random(threads)), "random")
    scheduled = scheduled_function(space.apply(candidate))
    found = fn.run(scheduled, given, wanted.shape, board.tvm_target, "uint8")
    np.testing.assert_array_equal(found, wanted, err_msg=str(candidate.decisions))


@needs_vnni
@pytest.mark.parametrize("bands", ["each", "several"])
def test_threads_share_the_bands_of_a_tall_image(bands: str) -> None:
    """Where a thread takes several bands after each other, as in images of ordinary height, and where one."""
    case = Depthwise({"each": 16, "several": 64}[bands], 6, 16, 3)
    board = dot_cases.vnni_board(2)
    space = space_for(case.task(board.hardware), board.hardware, 2)
    given, wanted = case.expected(board.hardware)
    candidate = space.candidate({"vectors": 1, "columns": 2, "parallel": 2}, "test")
    scheduled = scheduled_function(space.apply(candidate))
    assert "T.parallel" in scheduled.script()
    found = fn.run(scheduled, given, wanted.shape, board.tvm_target, "uint8")
    np.testing.assert_array_equal(found, wanted)


@needs_vnni
def test_a_result_that_is_moved_behind_the_sums_is_a_pass_of_its_own() -> None:
    task = CASES["3x3"].task(BOARD.hardware, transposed=True)
    space = space_for(task, BOARD.hardware)
    given, wanted = CASES["3x3"].expected(BOARD.hardware)
    moved = wanted.transpose(0, 3, 1, 2)
    scheduled = scheduled_function(space.apply(space.candidate(space.sample(random.Random(0)), "random")))
    found = fn.run(scheduled, given, moved.shape, BOARD.tvm_target, "uint8")
    np.testing.assert_array_equal(found, moved)


def test_four_rows_of_the_image_serve_two_of_the_result() -> None:
    """A tile of 3x3 has three dot products a vector, one of 5x5 ten, and keeps its sums in registers."""
    for taps, rows, dots in ((3, 2, 3), (5, 4, 10)):
        space = space_for(Depthwise(16, 8, 16, taps).task(BOARD.hardware), BOARD.hardware)
        candidate = space.candidate({"vectors": 1, "columns": 4}, "test")
        code = dot_cases.assembly(scheduled_function(space.apply(candidate)), BOARD)
        # LLVM repeats a tile, and so do the borders; groups of rows are a loop.
        tile = rows * 4 * dots // (1 if taps == 3 else 2)
        assert code.count("\tvpdpbusd\t") % tile == 0 < code.count("\tvpdpbusd\t")
        sums = [line for line in code.splitlines() if "\tvpdpbusd\t" in line]
        assert all(line.split()[-1].startswith("%zmm") for line in sums)


def test_the_trace_carries_every_decision() -> None:
    space = space_for(CASES["3x3"].task(BOARD.hardware), BOARD.hardware)
    profile = DeviceProfile("device", BOARD, BOARD.hardware, 1)
    (candidate,) = Gensor().propose(space, profile, (), 1, seed=0)
    schedule = space.apply(candidate)
    again = s_tir.Schedule(tvm.IRModule({"main": space.task.function}))
    schedule.trace.apply_to_schedule(again, remove_postproc=False)
    assert tvm_ffi.structural_equal(schedule.mod, again.mod)


def test_gensor_finds_the_best_of_all_programs_by_estimate() -> None:
    for size, *rest in ((112, 32, 3, 1), (28, 240, 5, 1), (7, 960, 5, 1), (56, 72, 5, 2)):
        space = space_for(Depthwise(size, size, *rest).task(BOARD.hardware), BOARD.hardware)
        profile = DeviceProfile("device", BOARD, BOARD.hardware, 1)
        (candidate,) = Gensor().propose(space, profile, (), 1, seed=0)
        values = {name: int(value) for name, value in candidate.decisions if isinstance(value, int)}
        choices = {decision.name: decision.choices for decision in space.decisions}
        every = [{"vectors": v, "columns": c} for v in choices["vectors"] for c in choices["columns"]]
        legal = [one for one in every if space.rule.legal(space.workload, BOARD.hardware, one)]
        assert space.estimate_s(values) <= 1.01 * min(map(space.estimate_s, legal))


def test_interleaved_rows_that_the_first_level_does_not_hold_go_to_the_second_and_back() -> None:
    hardware = BOARD.hardware
    first, second, *others = hardware.levels
    workload = space_for(Depthwise(112, 112, 96, 3, 2).task(hardware), hardware).workload
    values = {"vectors": 3, "columns": 4}
    # Four rows of 113 positions: of each a panel of 48 channels has a line, and a number for each lane.
    image, interleaved = 4 * 113 * 64, 4 * 113 * 48
    seconds = [
        lane_dots_seconds(
            workload, replace(hardware, levels=(replace(first, size_bytes=size), second, *others)), 1, values
        )
        for size in (image + interleaved, image + interleaved - 1)
    ]
    panels = 56 * 2
    spilled = panels * (image + 2 * interleaved) / second.bandwidth_bytes_per_s
    assert seconds[0] < spilled
    assert seconds[1] == pytest.approx(spilled)


def test_without_the_instruction_no_such_function_is_scheduled_by_this_rule() -> None:
    arm = dot_cases.arm_board()
    unsigned, signed = (
        analyse(replace(CASES["3x3"], dtype=dtype).task(board.hardware).function)
        for board, dtype in ((BOARD, "uint8"), (arm, "int8"))
    )
    without = dot_cases.arm_board("raspberry_pi_4").hardware
    for hardware, fits in ((BOARD.hardware, unsigned), (arm.hardware, signed), (without, None)):
        for workload in (unsigned, signed):
            assert LaneDots().matches(workload, hardware) == (workload is fits)


def test_arm_interleaves_whole_registers_of_rows() -> None:
    """Four vectors of sums share eight moves; one vector alone is put together from words."""
    arm = dot_cases.arm_board()
    space = space_for(Depthwise(16, 8, 16, 3, dtype="int8").task(arm.hardware), arm.hardware)
    assert space.rule.name == "lane_dots"
    target, codes = tvm.target.Target(arm.tvm_target), {}
    for vectors in (1, 4):
        schedule = space.apply(space.candidate({"vectors": vectors, "columns": 2}, "test"))
        lowered = lower_function(scheduled_function(schedule), "kernel", target)
        codes[vectors] = str(tvm.get_global_func("target.build.llvm")(lowered, target).inspect_source("s"))
    assert all("\tsdot\t" in code for code in codes.values())
    assert "zip2\tv" in codes[4] and ".16b" in codes[4]
    assert space.estimate_s({"vectors": 4, "columns": 2}) < space.estimate_s({"vectors": 1, "columns": 2})
