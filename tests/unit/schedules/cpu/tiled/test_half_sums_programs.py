"""Products with sums in halves: whatever the decisions and threads, a program computes its task."""

from __future__ import annotations

import random

import numpy as np
import tvm
from tvm import relax

from host.lowering import lower
from host.schedules import DesignSpace, scheduled_function, space_for
from tests.scheduling.repetitions import in_turn
from tests.unit.lowering.harness import imported, normal, relax_module, weight
from tests.unit.lowering.numeric_types.test_half_sums import board

# Sums in halves in another order, of blocks of up to 16 products, beside the largest result.
_APART = 4e-3


def dense(builder: relax.BlockBuilder, data: relax.Var) -> relax.Expr:
    """A layer between others, so that halves are read: 7 rows, a ragged number of columns."""
    wide = relax.op.nn.relu(relax.op.matmul(data, weight(12, 40)))
    made = relax.op.nn.relu(relax.op.add(relax.op.matmul(wide, weight(40, 10)), weight(10)))
    return relax.op.nn.softmax(made)


def conv(builder: relax.BlockBuilder, data: relax.Var) -> relax.Expr:
    """A convolution with strides and uneven padding."""
    wide = relax.op.nn.relu(relax.op.nn.conv2d(data, weight(12, 3, 1, 1)))
    made = relax.op.nn.conv2d(wide, weight(10, 12, 3, 3), padding=(1, 0, 2, 1), strides=2)
    return relax.op.nn.softmax(relax.op.nn.relu(made))


CASES = {"dense": (dense, normal(7, 12)), "conv": (conv, normal(2, 3, 9, 7))}


def space_of(name: str, threads: int) -> DesignSpace:
    build, data = CASES[name]
    model = lower(imported(relax_module(build, [data])), board(), half="float16")
    task = [task for task in model.tasks if f"half_{name}" in task.name][-1]
    return space_for(task, board().hardware, threads)


def _run(function: tvm.tirx.PrimFunc) -> np.ndarray:
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    target = tvm.target.Target({**board().tvm_target, "opt-level": 0})
    compiled = tvm.compile(module, target=target).jit()
    generator = np.random.default_rng(0)
    *given, result = [
        np.zeros([int(extent) for extent in one.shape], str(one.dtype)) for one in function.params
    ]
    arrays = [(generator.standard_normal(one.shape) / 4).astype(one.dtype) for one in given]
    made = tvm.runtime.tensor(np.full_like(result, np.nan))
    compiled["main"](*map(tvm.runtime.tensor, arrays), made)
    return made.numpy().astype("float64")


@in_turn("name, threads", CASES, [1, 2])
def test_random_programs_compute_the_task(name: str, threads: int) -> None:
    space = space_of(name, threads)
    assert space.rule.name == "half_sums"
    wanted = _run(space.task.function)
    generator = random.Random(threads)
    candidates = [space.candidate(space.sample(generator), "random") for _ in range(6)]
    programs = [scheduled_function(space.apply(candidate)) for candidate in candidates]
    shared = ["T.parallel(" in program.script() for program in programs]
    assert any(shared) == (threads > 1)
    for number in {shared.index(threads > 1), len(programs) - 1}:
        found = _run(programs[number])
        limit = _APART * float(np.abs(wanted).max())
        np.testing.assert_allclose(found, wanted, rtol=0, atol=limit, err_msg=str(candidates[number]))
