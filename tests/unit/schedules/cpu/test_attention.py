"""Programs of attention: whatever the decisions, a program computes its task."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import numpy as np
import pytest
import tvm
from tvm import s_tir

from host.errors import ScheduleError
from host.gensor import Gensor
from host.lowering.attention.function import AttentionShape, Operand, attention_function
from host.lowering.builder import Builder
from host.lowering.graph import Value
from host.lowering.ops import known_operators
from host.model import DeviceProfile
from host.schedules import DesignSpace, scheduled_function, space_for
from tests.scheduling.repetitions import in_turn
from tests.unit.schedules import functions as fn

# Heads, rows, columns, depth, width, and whose rows the mask has: none, those of all heads, those of each.
CASES = {
    "whole": ((2,), 24, 32, 16, 16, ""),
    "odd": ((3,), 37, 50, 12, 24, ""),
    "masked": ((2, 2), 26, 45, 8, 8, "shared"),
    "one head": ((), 40, 64, 16, 32, ""),
    "long": ((2,), 48, 400, 16, 16, "shared"),
    "biased": ((2, 2), 37, 45, 8, 8, "own"),
}


def _function(name: str) -> tvm.tirx.PrimFunc:
    batch, rows, columns, depth, width, mask = CASES[name]
    shape = AttentionShape.of(batch, rows, columns, depth, width, lanes=8)
    assert shape is not None
    count = len(batch)

    def operand(*sizes: int) -> Operand:
        return Operand(tuple(range(count + 2)), (*batch, *sizes))

    # Heads behind rows, as projections give them.
    turned = Operand((*range(1, count + 1), 0, count + 1), (rows, *batch, depth))
    attrs = {
        "extents": shape,
        "scale": 0.3,
        "query": turned,
        "key": operand(columns, depth),
        "value": operand(columns, width),
        "mask": {
            "": None,
            "shared": Operand((*(None,) * count, 0, 1), (rows, columns)),
            "own": operand(rows, columns),
        }[mask],
        "output": operand(rows, width),
    }
    value = Builder(known_operators()).one("attention", [Value((1,), "float32")], (1,), "float32", **attrs)
    assert value.producer is not None
    return attention_function(value.producer)


def _run(function: tvm.tirx.PrimFunc, target: dict[str, object]) -> np.ndarray:
    """The result of a function on numbers that depend on its arguments' shapes only."""
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    compiled = tvm.compile(module, target=tvm.target.Target({**target, "opt-level": 0})).jit()
    generator = np.random.default_rng(0)
    shapes = [tuple(int(extent) for extent in parameter.shape) for parameter in function.params]
    given = [generator.standard_normal(shape).astype("float32") for shape in shapes[:-1]]
    result = tvm.runtime.tensor(np.full(shapes[-1], np.nan, "float32"))
    compiled["main"](*(tvm.runtime.tensor(array) for array in given), result)
    return result.numpy()


def _space(name: str, threads: int = 1) -> tuple[DesignSpace, dict[str, object]]:
    board = fn.board("avx2", threads)
    return space_for(fn.task(_function(name), "layer"), board.hardware, threads), board.tvm_target


@in_turn("name, threads", CASES, [1, 2])
def test_random_programs_compute_the_task(name: str, threads: int) -> None:
    space, target = _space(name, threads)
    assert space.rule.name == "attention"
    wanted = _run(_function(name), target)
    generator = random.Random(threads)
    for _ in range(4):
        candidate = space.candidate(space.sample(generator), "random")
        found = _run(scheduled_function(space.apply(candidate)), target)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6, err_msg=str(candidate.decisions))


@pytest.mark.parametrize("name", CASES)
def test_the_trace_carries_every_factor(name: str) -> None:
    space, _ = _space(name)
    fn.assert_its_trace_is_the_program(space)


def test_scores_are_kept_for_a_block_of_rows_only() -> None:
    space, _ = _space("whole")
    values = {"vectors": 1, "rows": 4, "block": 2, "unroll": 1, "depth": 32}
    program = scheduled_function(space.apply(space.candidate(values, "test")))
    assert "(2, 24, 32)" not in str(_compacted(program))


def _compacted(program: tvm.tirx.PrimFunc) -> tvm.tirx.PrimFunc:
    """A program whose buffers have what is kept at a time."""
    module = tvm.IRModule({"main": program})
    for step in (
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        s_tir.transform.CompactBufferAllocation(),
    ):
        module = step(module)
    return module["main"]


def test_a_mask_of_each_head_is_copied_by_blocks_in_whole_vectors() -> None:
    space, _ = _space("biased")
    values = {"vectors": 1, "rows": 4, "block": 2, "unroll": 1, "depth": 45}
    text = str(_compacted(scheduled_function(space.apply(space.candidate(values, "test")))))
    assert "bias = T.sblock_alloc_buffer((1, 1, 8, 48))" in text
    # A clamped column would make a gather of every vector; behind a condition, whole vectors are without it.
    copied = next(line for line in text.splitlines() if "= T.if_then_else(" in line)
    assert "T.min(" in copied
    assert ", 44)" not in copied


def test_an_estimate_prefers_tiles_that_hide_latency_and_blocks_that_stay_in_cache() -> None:
    space, _ = _space("odd")
    least = {"vectors": 1, "rows": 1, "block": 1, "unroll": 1, "depth": space.decisions[-1].choices[-1]}
    assert space.estimate_s({**least, "rows": 2}) < space.estimate_s(least)


def test_values_are_taken_in_parts() -> None:
    space, target = _space("long")
    depths = space.decisions[-1].choices
    assert depths[-1] == 400
    assert len(depths) > 1
    wanted = _run(_function("long"), target)
    for depth in depths:
        values = {"vectors": 2, "rows": 3, "block": 4, "unroll": 2 - depth % 2, "depth": depth}
        found = _run(scheduled_function(space.apply(space.candidate(values, "test"))), target)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6, err_msg=str(depth))


def test_parts_of_values_pay_where_all_of_them_leave_the_first_level() -> None:
    space, _ = _space("long")
    values = {"vectors": 2, "rows": 4, "block": 6, "unroll": 1}
    large = 16 * 1024
    hardware = replace(
        space.hardware,
        levels=(replace(space.hardware.levels[0], size_bytes=large), *space.hardware.levels[1:]),
    )
    few = replace(space, hardware=hardware)
    assert few.estimate_s({**values, "depth": 100}) < few.estimate_s({**values, "depth": 400})
    assert space.estimate_s({**values, "depth": 400}) < space.estimate_s({**values, "depth": 50})


def test_gensor_finds_nearly_the_best_of_the_space() -> None:
    space, _ = _space("long")
    board = fn.board("avx2", 1)
    profile = DeviceProfile("test", board, board.hardware, 1)
    [candidate] = Gensor().propose(space, profile, (), 1, 0)
    names = [decision.name for decision in space.decisions]
    everything = (
        dict(zip(names, values, strict=True))
        for values in itertools.product(*(decision.choices for decision in space.decisions))
    )
    least = min(space.estimate_s(values) for values in everything if space.legal(values))
    assert space.estimate_s(dict(candidate.decisions)) <= 1.03 * least


def test_a_tile_that_does_not_fit_the_registers_is_not_legal() -> None:
    space, _ = _space("one head")
    wide = {"vectors": 4, "rows": 8, "block": 5, "unroll": 1, "depth": 64}
    assert not space.legal(wide)
    assert not space.legal({"vectors": 1, "rows": 4, "block": 4, "unroll": 1, "depth": 64})
    with pytest.raises(ScheduleError, match="not legal"):
        space.apply(space.candidate(wide, "test"))
