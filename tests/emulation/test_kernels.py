"""Kernels of every kind on emulated boards against the unscheduled functions on this machine."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tvm

from host.build import build_kernel_library
from host.gensor import Gensor
from host.model import DeviceProfile, Task
from host.schedules import scheduled_function, space_for
from tests.emulation.boards import PROCESSORS, board_of
from tests.emulation.operators import OPERATORS, tasks_of
from tests.emulation.qemu import Call, executable, run

# Board and threads of the programs.
BOARDS: dict[str, tuple[str, int]] = {
    "Cortex-A72": ("raspberry_pi_4", 1),
    "Cortex-A53, two threads": ("raspberry_pi_3", 2),
    "RISC-V without vectors": ("rv64gc", 1),
    "RISC-V with vectors": ("rv64gcv", 1),
    "RISC-V with vectors of 256 bits": ("spacemit_k1", 1),
}


def arguments(task: Task) -> list[np.ndarray]:
    """Seeded values for the parameters of a task, outputs zeroed."""
    draw = np.random.default_rng(int(task.workload_hash[:8], 16))
    written = _written(task)
    values = []
    for parameter in task.function.params:
        shape, dtype = tuple(int(extent) for extent in parameter.shape), str(parameter.dtype)
        if parameter.name in written:
            values.append(np.zeros(shape, dtype))
        elif dtype.startswith("float"):
            values.append(draw.normal(size=shape).astype(dtype))
        else:
            values.append(draw.integers(0, 2, shape).astype(dtype))
    return values


def _written(task: Task) -> set[str]:
    schedule = tvm.s_tir.Schedule(tvm.IRModule({"main": task.function}))
    blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
    return {region.source.name for block in blocks for region in schedule.get(block).writes}


def reference(
    tasks: list[Task], folder: Path, given: Callable[[Task], list[np.ndarray]] = arguments
) -> Callable[[Task], list[np.ndarray]]:
    """Runs an unscheduled task on this machine."""
    # Hardly optimised: compiling takes longer than the run.
    made_for = {"kind": "llvm", "mtriple": f"{platform.machine()}-linux-gnu", "opt-level": 0}
    target = tvm.target.Target(made_for)
    path = folder / "reference.so"
    build_kernel_library({task.workload_hash: task.function for task in tasks}, path, target)
    module = tvm.runtime.load_module(str(path))

    def call(task: Task) -> list[np.ndarray]:
        tensors = [tvm.runtime.tensor(value) for value in given(task)]
        module[task.workload_hash](*tensors)
        return [np.asarray(tensor.numpy()) for tensor in tensors]

    return call


# One core of Arm, RISC-V with vectors and without; the others by hand.
LONG = {"Cortex-A53, two threads", "RISC-V with vectors of 256 bits"}


@pytest.mark.parametrize(
    "label", [pytest.param(one, marks=[pytest.mark.long] if one in LONG else []) for one in BOARDS]
)
def test_every_kind_of_kernel_is_right(label: str, tmp_path: Path) -> None:
    name, threads = BOARDS[label]
    board = board_of(name)
    named = tasks_of(board)
    assert {operator for operator, _ in named} == set(OPERATORS)
    profile = DeviceProfile(name, board, board.hardware, threads)
    functions = {}
    for _, task in named:
        space = space_for(task, board.hardware, threads)
        (candidate,) = Gensor().propose(space, profile, (), 1, seed=0)
        assert math.isfinite(candidate.estimate_s)
        functions[task.workload_hash] = scheduled_function(space.apply(candidate))
    program = executable(board, functions, tmp_path / "emulated")
    calls = [Call(task.workload_hash, tuple(arguments(task))) for _, task in named]
    expected = reference([task for _, task in named], tmp_path)
    for processor in PROCESSORS[name]:
        found = run(program, list(functions), calls, board.architecture, processor)
        for (operator, task), ours in zip(named, found, strict=True):
            for mine, theirs in zip(ours, expected(task), strict=True):
                worst = f"{operator} ({task.name}) on {processor}"
                np.testing.assert_allclose(mine, theirs, rtol=2e-4, atol=2e-5, err_msg=worst)


def test_programs_use_the_vectors_of_the_board(tmp_path: Path) -> None:
    board = board_of("rv64gcv")
    task = next(task for operator, task in tasks_of(board) if operator == "dense")
    space = space_for(task, board.hardware)
    profile = DeviceProfile("rv64gcv", board, board.hardware, 1)
    (candidate,) = Gensor().propose(space, profile, (), 1, seed=0)
    kernels = {"dense": scheduled_function(space.apply(candidate))}
    program = executable(board, kernels, tmp_path)
    calls = [Call("dense", tuple(arguments(task)))]
    assert run(program, ["dense"], calls, "riscv64", "rv64,v=true,vlen=128")
    with pytest.raises(RuntimeError, match="ended with -4"):  # an illegal instruction
        run(program, ["dense"], calls, "riscv64", "rv64,v=false")
