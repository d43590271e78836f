"""Functions whose steps are algorithms: threads share them, and results are those of one thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from host.model import LoweredModel, Task
from host.schedules import scheduled_function, space_for
from tests.unit.lowering.harness import hardly_optimised, lowered, normal
from tests.unit.schedules import functions as fn

op = relax.op
REGIONS = np.array([[1, 2, 3, 20, 25], [0, -9, -7, 9, 5], [1, 4, 4, 5, 30]], np.float32)
IMAGES = normal(2, 9, 8, 5)


def _regions(**more: Any) -> Callable[..., Any]:
    def build(bb, x, regions):
        return op.vision.roi_align(x, regions, (3, 2), 0.5, layout="NHWC", **more)

    return build


CASES: dict[str, tuple[Callable[..., Any], list[np.ndarray]]] = {
    "first_in_order": (lambda bb, x: op.topk(x, 3, ret_type="values"), [normal(40, 70)]),
    "running": (lambda bb, x: op.cumsum(x, 1), [normal(4, 9, 70)]),
    "roi_align": (_regions(sample_ratio=2), [IMAGES, REGIONS]),
    "region_maxima": (
        lambda bb, x, regions: op.vision.roi_pool(x, regions, (3, 2), 0.5),
        [normal(2, 5, 9, 8), REGIONS],
    ),
}


def _task(model: LoweredModel, name: str) -> Task:
    (task,) = [task for task in model.tasks if name in task.name]
    return task


def _run(function: tvm.tirx.PrimFunc, arguments: list[np.ndarray]) -> np.ndarray:
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    compiled = tvm.compile(module, target=hardly_optimised(tvm.target.Target({"kind": "llvm"}))).jit()
    result = function.params[-1].ty
    made = tvm.runtime.tensor(np.full([int(size) for size in result.shape], 77, str(result.dtype)))
    compiled["main"](*map(tvm.runtime.tensor, arguments), made)
    return made.numpy()


def task_of(name: str) -> Task:
    """The task of one of the cases."""
    build, inputs = CASES[name]
    return _task(lowered(build, inputs), name)


@pytest.mark.parametrize("name", CASES)
def test_threads_share_the_steps(name: str) -> None:
    task, inputs = task_of(name), CASES[name][1]
    space = space_for(task, fn.board("", 2).hardware, 2)
    assert space.rule.name == "steps"
    shapes = [[int(size) for size in one.ty.shape] for one in task.function.params[:-1]]
    # What was transposed on the way is drawn again in the form that the function takes.
    pairs = zip(inputs, shapes, strict=True)
    given = [one if list(one.shape) == shape else normal(*shape) for one, shape in pairs]
    programs = {}
    for threads in (1, 2):
        candidate = space.candidate({"parallel": threads}, "test")
        programs[threads] = scheduled_function(space.apply(candidate))
        assert ("T.parallel" in programs[threads].script()) == (threads > 1)
    alone, shared = (_run(program, given) for program in programs.values())
    np.testing.assert_array_equal(shared, alone)
    np.testing.assert_array_equal(alone, _run(task.function, given))


def test_few_short_steps_are_not_shared() -> None:
    estimates = []
    for rows in (1, 4000):
        task = _task(lowered(lambda bb, x: op.cumsum(x, 1), [normal(rows, 50)]), "running")
        space = space_for(task, fn.board("", 2).hardware, 2)
        estimates.append([space.estimate_s({"parallel": threads}) for threads in (1, 2)])
    (alone, shared), (many_alone, many_shared) = estimates
    assert alone < shared
    assert many_shared < many_alone
