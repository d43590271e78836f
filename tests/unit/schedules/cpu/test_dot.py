"""Products of bytes: whatever the decisions the sums are exact, and the instruction is in the code."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import s_tir

from host.gensor import Gensor
from host.model import DeviceProfile, Task
from host.schedules import DesignSpace, scheduled_function, space_for
from host.schedules.analysis import analyse
from host.schedules.cpu.dot.intrinsics import INSTRUCTION, PLAIN
from host.schedules.cpu.dot.rule import Dot
from host.schedules.cpu.tiled import cost
from targets import Board
from tests.scheduling.repetitions import in_turn
from tests.unit.schedules import functions as fn
from tests.unit.schedules.cpu import dot_cases as cases

TASKS = {
    "dense": lambda lanes, dtype: cases.dense_task(23, 48, 40, lanes, dtype),
    "prime rows": lambda lanes, dtype: cases.dense_task(197, 32, 16, lanes, dtype),
    "one row": lambda lanes, dtype: cases.dense_task(1, 64, 128, lanes, dtype),
    "convolution": lambda lanes, dtype: cases.convolution_task(9, 8, 32, lanes, dtype),
}
# Board, vector lanes, type of the activations and the instruction.
PROCESSORS = {
    "AVX-512": (cases.vnni_board, 16, "uint8", "vpdpbusd"),
    "AVX-512, half vectors": (cases.vnni_board, 8, "uint8", "vpdpbusd"),
    "AVX2": (lambda: cases.vnni_board(restrict="avx2"), 8, "uint8", "vpdpbusd"),
    "AVX2 without VNNI": (cases.pairs_board, 8, "int16", "vpmaddwd"),
    "Cortex-A76": (cases.arm_board, 4, "int8", "sdot"),
}
# Board for a number of threads, vector lanes and type of the activations.
RUNNABLE = {"AVX-512": (cases.vnni_board, 16, "uint8"), "AVX2": (cases.pairs_board, 8, "int16")}


def chosen(space: DesignSpace, board: Board) -> dict[str, int]:
    """The decisions of Gensor's first program."""
    profile = DeviceProfile("device", board, board.hardware, space.threads)
    (candidate,) = Gensor().propose(space, profile, (), 1, seed=0)
    return {name: int(value) for name, value in candidate.decisions if isinstance(value, int)}


@pytest.mark.parametrize("kind", ["bytes", "halves"])
def test_programs_share_parts_of_their_estimates(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The processor that an estimate sees is one object for all of them."""
    if kind == "bytes":
        space = space_for(cases.dense_task(23, 48, 40, 16), cases.vnni_board().hardware)
        values = space.sample(random.Random(1))
    else:
        space = space_for(fn.task(fn.dense(23, 48, 40)), fn.board("avx2").hardware)
        values = space.sample(random.Random(1))
        space = replace(space, hardware=cases.arm_board().hardware)
    computed: list[object] = []

    def counted(*given: Any) -> float:
        computed.append(given)
        return cycles(*given)

    cycles = cost._compute_cycles
    monkeypatch.setattr(cost, "_compute_cycles", counted)
    for _ in range(3):
        if kind == "bytes":
            space.estimated(values)
        else:
            replace(space, hardware=space.hardware.on_halves()).estimated(values)
    assert len(computed) == 1


@in_turn("name, processor, threads", TASKS, RUNNABLE, [1, 2])
def test_random_programs_compute_the_task(name: str, processor: str, threads: int) -> None:
    make, lanes, dtype = RUNNABLE[processor]
    board = make(threads)
    task: Task = TASKS[name](lanes, dtype)
    space = space_for(task, board.hardware, threads)
    assert space.rule.name == "dot"
    given = cases.arguments(task)
    wanted, generator = cases.expected(task, given), random.Random(threads)
    assert np.ptp(wanted.astype("int64")) > 50
    kinds = [INSTRUCTION, INSTRUCTION, INSTRUCTION, PLAIN] if cases.runs_here(board) else [PLAIN]
    for kind in kinds:
        candidate = space.candidate({**space.sample(generator), "intrinsic": kind}, "random")
        scheduled = scheduled_function(space.apply(candidate))
        target = cases.executable_here(board).tvm_target
        found = fn.run(scheduled, given[:-1], wanted.shape, target, wanted.dtype.name)
        np.testing.assert_array_equal(found, wanted, err_msg=str(candidate.decisions))


@pytest.mark.parametrize("processor", PROCESSORS)
def test_the_instruction_is_a_decision_and_in_the_code(processor: str) -> None:
    make, lanes, dtype, instruction = PROCESSORS[processor]
    board = make()
    space = space_for(TASKS["dense"](lanes, dtype), board.hardware)
    values = chosen(space, board)
    assert values["intrinsic"] == INSTRUCTION
    for kind, wanted in ((INSTRUCTION, True), (PLAIN, False)):
        candidate = space.candidate({**values, "intrinsic": kind}, "test")
        assert ("intrinsic", kind) in candidate.decisions
        code = cases.assembly(scheduled_function(space.apply(candidate)), board)
        # Once for every register of the tile.
        enough = values["rows"] * values["vectors"] if wanted else 0
        assert code.count(f"\t{instruction}\t") >= enough
        assert (f"\t{instruction}\t" in code) == wanted


def test_arm_takes_groups_of_one_vector_of_activations_in_turn() -> None:
    """SDOT by element: four steps load their activations once, and the estimate says so."""
    board = cases.arm_board()
    space = space_for(cases.dense_task(24, 48, 512, 4, "int8"), board.hardware)
    values = {**chosen(space, board), "vectors": 2, "rows": 4, "panel": 1, "block": 1, "unroll": 1}
    codes = {
        steps: cases.assembly(
            scheduled_function(space.apply(space.candidate({**values, "unroll": steps}, "test"))), board
        )
        for steps in (1, 2, 4)
    }
    for steps, code in codes.items():
        assert all(f".4b[{lane}]" in code for lane in range(steps) if steps > 1)
        assert not any(f".4b[{lane}]" in code for lane in range(max(1, steps), 4))
    assert space.estimate_s({**values, "unroll": 4}) < space.estimate_s(values)


def test_the_trace_carries_the_instruction() -> None:
    board = cases.vnni_board()
    space = space_for(TASKS["convolution"](16, "uint8"), board.hardware)
    schedule = space.apply(space.candidate(chosen(space, board), "test"))
    assert any(instruction.kind.name == "Tensorize" for instruction in schedule.trace.insts)
    again = s_tir.Schedule(tvm.IRModule({"main": space.task.function}))
    schedule.trace.apply_to_schedule(again, remove_postproc=False)
    assert tvm_ffi.structural_equal(schedule.mod, again.mod)


@pytest.mark.parametrize("processor", RUNNABLE)
def test_the_products_of_a_lane_cost_about_one_multiply_add(processor: str) -> None:
    """Four products a lane take a quarter of fp32's time, two of them between a half and two thirds."""
    make, lanes, dtype = RUNNABLE[processor]
    board = make(1)
    hardware = board.hardware
    space = space_for(cases.dense_task(128, 768, 768, lanes, dtype), hardware)
    values = chosen(space, board)
    seconds = space.estimate_s(values)
    group = 4 if dtype == "uint8" else 2
    starts = hardware.fma_per_cycle * hardware.frequency_hz
    fastest = 128 * 768 * 768 / (group * lanes * starts)
    assert fastest < seconds < 1.4 * fastest
    assert space.estimate_s({**values, "intrinsic": PLAIN}) > 3 * seconds


@pytest.mark.parametrize("processor", RUNNABLE)
def test_a_vector_with_a_matrix_from_memory_takes_the_instruction(processor: str) -> None:
    """The weights of one row are widened for one product each: plain code is slower than the memory."""
    make, lanes, dtype = RUNNABLE[processor]
    board = make(1)
    space = space_for(cases.dense_task(1, 3072, 768, lanes, dtype), board.hardware)
    values = chosen(space, board)
    assert values["intrinsic"] == INSTRUCTION
    assert space.estimate_s({**values, "intrinsic": PLAIN}) > 1.5 * space.estimate_s(values)


@pytest.mark.parametrize("processor", PROCESSORS)
def test_only_a_processor_with_the_instruction_has_the_space(processor: str) -> None:
    make, lanes, dtype, _ = PROCESSORS[processor]
    workload = analyse(cases.dense_task(8, 32, 16, lanes, dtype).function)
    hardware = make().hardware
    assert Dot().matches(workload, hardware)
    others = {"", "u8s8", "s8s8", "s16s16"} - {hardware.dot_product}
    assert not any(Dot().matches(workload, replace(hardware, dot_product=kind)) for kind in others)
