"""Loops over the steps of recurrent layers: whatever the decisions, a program computes its task."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
import tvm

from host.errors import ScheduleError
from host.lowering.builder import Builder
from host.lowering.graph import Value
from host.lowering.ops import known_operators
from host.lowering.recurrent.cells import Cell
from host.lowering.recurrent.loop import LoopShape, last_states, recurrent_function
from host.schedules import DesignSpace, scheduled_function, space_for
from host.schedules.analysis import analyse
from tests.scheduling.repetitions import in_turn
from tests.unit.schedules import functions as fn

SHAPE = LoopShape(steps=3, batch=4, blocks=4, lanes=8)
CELLS = {
    "rnn": Cell("rnn", ("tanh",)),
    "gru": Cell("gru", ("sigmoid", "tanh")),
    "gru reset after": Cell("gru", ("sigmoid", "tanh"), reset_after=True),
    "lstm": Cell("lstm", ("sigmoid", "tanh", "tanh"), peepholes=True),
}

LENGTHS = {"missing": np.array([[3], [1], [2], [1]], "int32"), "least": np.array([1], "int32")}


def _function(cell: Cell, shape: LoopShape = SHAPE) -> tvm.tirx.PrimFunc:
    builder = Builder(known_operators())
    attrs = {"cell": cell, "shape": shape, "reverse": False}
    states = (shape.batch, shape.hidden)
    last = last_states(cell, shape)
    outputs = [((shape.steps, *states), "float32"), *((states, "float32") for _ in last)]
    value = builder.emit("recurrent_loop", [Value((1,), "float32")], attrs, outputs)[0]
    assert value.producer is not None
    return recurrent_function(value.producer)


def _run(function: tvm.tirx.PrimFunc, target: dict[str, object], zeros: bool = False) -> list[np.ndarray]:
    """All results of a function on numbers that depend on its arguments' shapes only.

    Args:
        function: of a layer.
        target: of TVM.
        zeros: whether integers are zeros, as where a kernel is measured alone.
    """
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    compiled = tvm.compile(module, target=tvm.target.Target({**target, "opt-level": 0})).jit()
    generator = np.random.default_rng(0)
    arguments = []
    for parameter in function.params:
        shape = [int(extent) for extent in parameter.shape]
        if str(parameter.dtype) == "int32":
            array = np.zeros(shape, "int32") if zeros else LENGTHS[parameter.name]
            arguments.append((True, tvm.runtime.tensor(array)))
            continue
        given = not parameter.name.startswith(("sequence", "last_"))
        array = generator.standard_normal(shape) / 4 if given else np.full(shape, np.nan)
        arguments.append((given, tvm.runtime.tensor(array.astype("float32"))))
    compiled["main"](*[tensor for _, tensor in arguments])
    return [tensor.numpy() for given, tensor in arguments if not given]


def _space(name: str, threads: int = 1, shape: LoopShape = SHAPE) -> tuple[DesignSpace, dict[str, object]]:
    board, function = fn.board("avx2", threads), _function(CELLS[name], shape)
    return space_for(fn.task(function, "layer"), board.hardware, threads), board.tvm_target


@in_turn("name, has_lengths, threads", CELLS, [False, True], [1, 2])
def test_random_programs_compute_the_task(name: str, has_lengths: bool, threads: int) -> None:
    shape = replace(SHAPE, has_lengths=has_lengths)
    space, target = _space(name, threads, shape)
    assert space.rule.name == "recurrent"
    wanted = _run(_function(CELLS[name], shape), target)
    assert all(np.isfinite(array).all() for array in wanted)
    generator = random.Random(threads)
    for _ in range(5):
        candidate = space.candidate(space.sample(generator), "random")
        found = _run(scheduled_function(space.apply(candidate)), target)
        for ours, plain in zip(found, wanted, strict=True):
            np.testing.assert_allclose(ours, plain, rtol=1e-5, atol=1e-6, err_msg=str(candidate.decisions))


@pytest.mark.parametrize("name", CELLS)
def test_a_call_with_zeros_for_integers_computes_every_step(name: str) -> None:
    """Kernels are measured and their instructions counted so: it has to take as long as a typical call."""
    target = fn.board("avx2").tvm_target
    whole = _run(_function(CELLS[name]), target)
    found = _run(_function(CELLS[name], replace(SHAPE, has_lengths=True)), target, zeros=True)
    np.testing.assert_allclose(found[0], whole[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CELLS)
def test_the_trace_carries_every_factor(name: str) -> None:
    space, _ = _space(name)
    fn.assert_its_trace_is_the_program(space)


def test_a_workload_counts_all_steps() -> None:
    cell = CELLS["gru reset after"]
    workload = analyse(_function(cell))
    assert workload.steps == SHAPE.steps
    product = 2 * 3 * SHAPE.batch * SHAPE.hidden**2
    assert workload.flops > SHAPE.steps * product


def test_an_estimate_grows_with_the_steps_and_shrinks_with_a_tile_that_hides_latency() -> None:
    space, _ = _space("gru reset after")
    least = {"vectors": 1, "rows": 1, "unroll": 1}
    assert space.estimate_s({**least, "rows": 4}) < space.estimate_s(least)


def test_threads_pay_for_large_layers_only() -> None:
    """A step of a small layer is shorter than the wait for another thread."""
    least = {"vectors": 1, "rows": 1, "unroll": 1}
    for blocks, faster in ((4, 1), (128, 2)):
        function = _function(CELLS["lstm"], replace(SHAPE, blocks=blocks, batch=1))
        space = space_for(fn.task(function, "layer"), fn.board("avx2", 2).hardware, 2)
        times = {threads: space.estimate_s({**least, "parallel": threads}) for threads in (1, 2)}
        assert min(times, key=times.__getitem__) == faster


def test_a_tile_that_does_not_fit_the_registers_is_not_legal() -> None:
    space, _ = _space("lstm")
    assert not space.legal({"vectors": 4, "rows": 4, "unroll": 1})
    with pytest.raises(ScheduleError, match="not legal"):
        space.apply(space.candidate({"vectors": 4, "rows": 4, "unroll": 1}, "test"))
