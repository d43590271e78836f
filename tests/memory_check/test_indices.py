"""Indices that an application gives out of range stay within the tensor that they point into."""

from __future__ import annotations

import os
import traceback
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from host.compile.device_profile import target_profile
from host.compile.static_model import build, lower_model, propose
from host.importers import load_here
from host.progress import Silence, StageClock
from tests.integration.small_models import floats, save
from tests.memory_check.execution import GuardedModel, results_of, workspaces_on_the_heap

SHAPE = (4, 6, 5)
# Operator, shape of the indices, shape of the updates.
OPERATORS = {
    "ScatterElements": ((4, 6, 5), (4, 6, 5)),
    "ScatterND": ((3, 2), (3, 5)),
    "GatherElements": ((4, 6, 5), None),
    "GatherND": ((3, 2), None),
    "Gather": ((3, 2), None),
}
FAR = (1 << 40, -(1 << 40), 7, -7)


@pytest.mark.parametrize("operator", OPERATORS)
def test_indices_out_of_range_touch_no_other_memory(operator: str, tmp_path: Path) -> None:
    shape, updates = OPERATORS[operator]
    inputs = [floats("x", *SHAPE), helper.make_tensor_value_info("places", TensorProto.INT64, shape)]
    inputs += [] if updates is None else [floats("updates", *updates)]
    node = helper.make_node(operator, [one.name for one in inputs], ["y"])
    model = load_here(save(tmp_path / "model.onnx", [node], inputs, [floats("y", *_result(operator))]))
    clock, profile = StageClock(Silence()), target_profile("x86_64-v3", 1)
    lowered = lower_model(model, profile, clock)
    with workspaces_on_the_heap():
        made = build(lowered, profile, propose(lowered, profile, 0, clock), tmp_path / "model.so", clock)
    draw = np.random.default_rng(0)
    values = [np.ones(SHAPE, np.float32), draw.choice(np.array(FAR, np.int64), shape)]
    values += [] if updates is None else [np.ones(updates, np.float32)]
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            guarded = GuardedModel(made.library, results_of(lowered), made.parameters)
            [found] = guarded.run(values)
            code = 0 if not guarded.faults and (found == 1).all() else 2
        except BaseException:  # noqa: BLE001 - a forked child has nobody above to show it
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def _result(operator: str) -> tuple[int, ...]:
    return {"GatherND": (3, 5), "Gather": (3, 2, 6, 5)}.get(operator, SHAPE)
