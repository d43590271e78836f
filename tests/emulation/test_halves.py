"""Kernels of a model in half precision on emulated boards, with conversions of the processor and without."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from host.gensor import Gensor
from host.lowering import lower
from host.model import DeviceProfile
from host.schedules import scheduled_function, space_for
from tests.emulation.boards import PROCESSORS, board_of
from tests.emulation.qemu import Call, executable, run
from tests.emulation.test_kernels import arguments, reference
from tests.unit.lowering.harness import imported, relax_module
from tests.unit.lowering.numeric_types import test_half_sums as sums
from tests.unit.lowering.numeric_types.test_halves import INPUTS, network

# A model for each board, and how far a sum in another order may be off: rounded to the half beside, or, where
# blocks of 16 products are summed in halves, four times the usual error of one of those.
CASES = {
    "raspberry_pi_4": (network, INPUTS, 1e-3),
    "rv64gc": (network, INPUTS, 1e-3),
    "rv64gcv": (network, INPUTS, 1e-3),
    "raspberry_pi_5": (sums.network, sums.IMAGE, 3e-3),
}


@pytest.mark.parametrize("name", CASES)
def test_kernels_with_halves_are_right(name: str, tmp_path: Path) -> None:
    build, inputs, apart = CASES[name]
    board = board_of(name)
    profile = DeviceProfile(name, board, board.hardware, 1)
    tasks = list(lower(imported(relax_module(build, inputs)), board, half="float16").tasks)
    assert any("float16" in task.function.script() for task in tasks)
    functions = {}
    for task in tasks:
        space = space_for(task, board.hardware)
        (candidate,) = Gensor().propose(space, profile, (), 1, seed=0)
        functions[task.workload_hash] = scheduled_function(space.apply(candidate))
    program = executable(board, functions, tmp_path / "emulated")
    calls = [Call(task.workload_hash, tuple(arguments(task))) for task in tasks]
    expected = reference(tasks, tmp_path)
    for processor in PROCESSORS[name]:
        found = run(program, list(functions), calls, board.architecture, processor)
        for task, ours in zip(tasks, found, strict=True):
            for mine, theirs in zip(ours, expected(task), strict=True):
                limit = apart * max(1.0, float(np.abs(theirs.astype("float32")).max()))
                np.testing.assert_allclose(mine, theirs, rtol=apart, atol=limit, err_msg=task.name)
