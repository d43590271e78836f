"""Products of bfloat16: whatever the decisions the sums are right, and the instruction is in the code."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np

from host.gensor import Gensor
from host.model import DeviceProfile, Task
from host.schedules import DesignSpace, scheduled_function, space_for
from host.schedules.analysis import analyse
from host.schedules.cpu.dot.rule import Dot
from tests.scheduling.repetitions import in_turn
from tests.unit.schedules.cpu import bfloat16_cases as cases

# A task, its columns, and its strides.
TASKS = {
    "dense": (lambda: cases.dense_task(23, 48, 40), 48, 1),
    "columns that fill no vector": (lambda: cases.dense_task(7, 20, 64), 20, 1),
    "prime rows": (lambda: cases.dense_task(197, 32, 16), 32, 1),
    "one row": (lambda: cases.dense_task(1, 64, 128), 64, 1),
    "activations in single precision": (lambda: cases.dense_task(9, 32, 24, stored=False), 32, 1),
    "half vectors": (lambda: cases.dense_task(9, 24, 24, lanes=8), 24, 1),
    "weights that no cache holds": (lambda: cases.dense_task(33, 2048, 1024), 2048, 1),
    "convolution": (lambda: cases.convolution_task(9, 8, 32), 32, 1),
    "strided convolution": (lambda: cases.convolution_task(12, 6, 16, stride=2), 16, 2),
}


def chosen(space: DesignSpace) -> dict[str, int]:
    """The decisions of Gensor's first program."""
    board = cases.board()
    profile = DeviceProfile("device", board, board.hardware, space.threads)
    (candidate,) = Gensor().propose(space, profile, (), 1, seed=0)
    return {name: int(value) for name, value in candidate.decisions if isinstance(value, int)}


@in_turn("name, threads", TASKS, [1, 2])
def test_random_programs_compute_the_task(name: str, threads: int) -> None:
    make, columns, stride = TASKS[name]
    task: Task = make()
    space = space_for(task, cases.board(threads).hardware, threads)
    assert space.rule.name == "dot"
    given, generator = cases.arguments(task), random.Random(threads)
    wanted = cases.expected(given, columns, stride)
    if wanted.ndim == 2:
        wanted = wanted[:, :columns]
    for values in [chosen(space), *(space.sample(generator) for _ in range(4))]:
        scheduled = scheduled_function(space.apply(space.candidate(values, "random")))
        found = cases.run(scheduled, given, wanted.shape, "bfloat16").astype(np.float64)
        # One rounding of the result, and sums in single precision.
        error = np.abs(found - wanted).max() / np.abs(wanted).max()
        assert error < 2.0**-8, f"{values}: {error}"


def test_the_instruction_multiplies_every_register_of_a_tile() -> None:
    space = space_for(cases.dense_task(32, 64, 64), cases.board().hardware)
    values = chosen(space)
    assert values["vectors"] > 1, "one vector wide, every instruction would broadcast for itself"
    code = cases.assembly(scheduled_function(space.apply(space.candidate(values, "test"))))
    assert code.count("\tvdpbf16ps\t") >= values["rows"] * values["vectors"]
    assert "vcvtneps2bf16" in code and "vfmadd" not in code


def test_half_vectors_have_half_the_instruction() -> None:
    space = space_for(cases.dense_task(9, 24, 24, lanes=8), cases.board().hardware)
    code = cases.assembly(scheduled_function(space.apply(space.candidate(chosen(space), "test"))))
    [first, *_] = [line for line in code.splitlines() if "vdpbf16ps" in line]
    assert "%ymm" in first and "%zmm" not in first


def test_weights_that_no_cache_holds_are_fetched_ahead() -> None:
    space = space_for(cases.dense_task(64, 4096, 1024), cases.board().hardware)
    values = chosen(space)
    assert values["fetch"] == 1
    without = {**values, "fetch": 0}
    assert space.estimate_s(without) > space.estimate_s(values)
    codes = [
        cases.assembly(scheduled_function(space.apply(space.candidate(one, "test"))))
        for one in (values, without)
    ]
    assert ["prefetch" in code for code in codes] == [True, False]
    small = space_for(cases.dense_task(64, 64, 64), cases.board().hardware)
    assert {d.name: d.choices for d in small.decisions}["fetch"] == (0,)


def test_two_products_a_lane_cost_one_multiply_add_at_the_rate_of_the_processor() -> None:
    hardware = cases.board().hardware
    task = cases.dense_task(128, 768, 768)
    space = space_for(task, hardware)
    values = chosen(space)
    assert hardware.bfloat16 is not None
    fastest = 128 * 768 * 768 / (2 * hardware.lanes * hardware.bfloat16.per_cycle * hardware.frequency_hz)
    assert fastest < space.estimate_s(values) < 1.4 * fastest
    slower = replace(hardware, bfloat16=replace(hardware.bfloat16, per_cycle=0.25))
    assert space_for(task, slower).estimate_s(values) > 3 * space.estimate_s(values)


def test_only_a_processor_with_the_instruction_has_the_space() -> None:
    board = cases.board()
    workload = analyse(cases.dense_task(8, 32, 16).function)
    assert Dot().matches(workload, board.hardware)
    assert not Dot().matches(workload, replace(board.hardware, bfloat16=None))
