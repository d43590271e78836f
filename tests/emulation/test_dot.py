"""Products of bytes on emulated Arm boards, with the dot product where the core has it and without."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from host.gensor import Gensor
from host.lowering import lower
from host.model import DeviceProfile, Task
from host.schedules import scheduled_function, space_for
from tests.emulation.boards import PROCESSORS, board_of
from tests.emulation.qemu import Call, executable, run
from tests.emulation.test_kernels import reference
from tests.unit.lowering.numeric_types import quantized_models as models

# Board, the rule that makes its products, and a processor that its programs do not run on.
BOARDS = {
    "raspberry_pi_5": ("dot", "cortex-a72"),
    "raspberry_pi_4": ("tiled", ""),
    "rv64gcv": ("tiled", ""),
}


def arguments(task: Task) -> list[np.ndarray]:
    """Seeded values for the parameters of a task, the last of which is its result."""
    draw = np.random.default_rng(int(task.workload_hash[:8], 16))
    values = []
    for parameter in task.function.params:
        shape, dtype = tuple(int(extent) for extent in parameter.shape), str(parameter.dtype)
        if dtype == "float32":
            values.append((draw.random(shape) * 1e-3).astype(dtype))
        else:
            limits = np.iinfo("int16" if dtype == "int32" else dtype)
            values.append(draw.integers(limits.min, limits.max + 1, shape).astype(dtype))
    return values


# A core with the instruction and one without; the third by hand.
@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[pytest.mark.long] * (one == "raspberry_pi_4")) for one in BOARDS]
)
def test_products_of_bytes_are_exact(name: str, tmp_path: Path) -> None:
    rule, unfit = BOARDS[name]
    board = board_of(name)
    profile = DeviceProfile(name, board, board.hardware, 1)
    found = [models.gemm(tmp_path, "int8"), models.convolution(tmp_path, "uint8")]
    products = [
        task
        for model in found
        for task in lower(model, board).tasks
        if "dense" in task.name or "conv" in task.name
    ]
    assert len(products) == 3
    functions = {}
    for task in products:
        space = space_for(task, board.hardware)
        assert space.rule.name == rule
        (candidate,) = Gensor().propose(space, profile, (), 1, seed=0)
        functions[task.workload_hash] = scheduled_function(space.apply(candidate))
    program = executable(board, functions, tmp_path / "emulated")
    calls = [Call(task.workload_hash, tuple(arguments(task))) for task in products]
    expected = reference(products, tmp_path, arguments)
    for processor in PROCESSORS[name]:
        results = run(program, list(functions), calls, board.architecture, processor)
        for task, ours in zip(products, results, strict=True):
            # Bytes to the last bit, and numbers that are bytes times a scale.
            np.testing.assert_allclose(ours[-1], expected(task)[-1], rtol=1e-6, atol=0, err_msg=task.name)
            assert np.unique(ours[-1]).size > 20
    if unfit:
        with pytest.raises(RuntimeError, match="ended with -4"):  # an illegal instruction
            run(program, list(functions), calls, board.architecture, unfit)
