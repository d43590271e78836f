"""Chains in bands of rows: whatever the decisions, a program computes its task."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm

from host.gensor import Gensor
from host.model import DeviceProfile
from host.schedules import DesignSpace, scheduled_function, space_for
from host.schedules.cpu.chain.rule import RULE
from host.schedules.cpu.tiled.rule import RULE as TILED
from host.schedules.cpu.tiled.rule import Tiled
from tests.unit.lowering.test_bands import Shape, _lowered, _sites
from tests.unit.schedules import functions as fn

SHAPES = {
    "three parts": Shape(height=13, channels=24),
    "two parts with stride 2": Shape(out=0, height=14, kernel=5, stride=2, padding=(2, 2, 2, 2)),
    "products alone": Shape(height=13, channels=24, bare=True),
}


def chain_space(name: str, threads: int = 1) -> tuple[DesignSpace, dict[str, object]]:
    """The space of a chain of `SHAPES`, and the target of its programs."""
    rows = _sites(_lowered(SHAPES[name]))[0].options[-1]
    [task] = (task for task in _lowered(SHAPES[name], rows=rows).tasks if "chain" in task.name)
    found = fn.board("avx2", threads)
    return space_for(task, found.hardware, threads), found.tvm_target


def _run(function: tvm.tirx.PrimFunc, target: dict[str, object]) -> np.ndarray:
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    compiled = tvm.compile(module, target=tvm.target.Target({**target, "opt-level": 0})).jit()
    generator = np.random.default_rng(0)
    *given, result = [[int(extent) for extent in parameter.shape] for parameter in function.params]
    arrays = [generator.standard_normal(shape).astype("float32") / 4 for shape in given]
    made = tvm.runtime.tensor(np.full(result, np.nan, "float32"))
    compiled["main"](*map(tvm.runtime.tensor, arrays), made)
    return made.numpy()


@pytest.mark.parametrize(
    "name, threads",
    [
        ("three parts", 2),
        ("two parts with stride 2", 1),
        ("products alone", 1),
        pytest.param("three parts", 1, marks=pytest.mark.long),
        pytest.param("two parts with stride 2", 2, marks=pytest.mark.long),
    ],
)
def test_random_programs_compute_the_task(name: str, threads: int) -> None:
    space, target = chain_space(name, threads)
    assert space.rule.name == "chain"
    wanted = _run(space.task.function, target)
    generator = random.Random(threads)
    for _ in range(3):
        candidate = space.candidate(space.sample(generator), "random")
        found = _run(scheduled_function(space.apply(candidate)), target)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6, err_msg=str(candidate.decisions))


def test_each_part_is_a_space_of_its_own_rule() -> None:
    space, _ = chain_space("three parts", 2)
    names = [kind.name for kind in TILED.decisions]
    assert [[one.name for one in part.decisions] for part in space.parts] == [names] * 3
    assert all(part.rule is TILED and part.threads == 1 for part in space.parts)
    values = space.sample(random.Random(0))
    for number, part in enumerate(space.parts):
        own = list(values.values())[len(names) * number : len(names) * (number + 1)]
        for value in part.decisions[0].choices:
            changed = dict(zip(names, own, strict=True)) | {names[0]: value}
            whole = values | {f"{('first', 'second', 'third')[number]}_{names[0]}": value}
            assert part.legal(changed) == space.legal(whole)
    assert not space.parts[0].parts


def test_parts_are_drawn_by_themselves() -> None:
    # In one of 700 draws of all decisions, all three parts are legal at once.
    space, _ = chain_space("three parts", 2)
    drawn = [space.sample(random.Random(seed), attempts=300) for seed in range(12)]
    assert all(map(space.legal, drawn))
    assert {tuple(one) for one in drawn} == {tuple(decision.name for decision in space.decisions)}
    assert {one["parallel"] for one in drawn} == {1, 2}


def test_the_estimate_is_that_of_the_parts_times_the_bands() -> None:
    space, _ = chain_space("three parts")
    values = space.sample(random.Random(1))
    twice = replace(space, workload=replace(space.workload, bands=2 * space.workload.bands))
    assert twice.estimate_s(values) == pytest.approx(2 * space.estimate_s(values))
    assert space.estimate_s(values) > space.workload.flops / space.hardware.peak_flops


def test_parts_are_judged_and_estimated_once_and_as_they_would_be_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    space, _ = chain_space("three parts")
    asked: list[str] = []
    for name in ("legal", "estimate_s"):
        original = getattr(Tiled, name)

        def counted(self: Tiled, *given: Any, name: str = name, original: Any = original) -> Any:
            asked.append(name)
            return original(self, *given)

        monkeypatch.setattr(Tiled, name, counted)
    values = space.sample(random.Random(2))
    near = next(
        one
        for one in space.neighbours(values)
        if any(one[name] != values[name] for name in values if name.startswith("second"))
    )
    asked.clear()
    first = space.estimate_s(values)
    assert asked == ["estimate_s"] * 3
    assert space.legal(values) and space.legal(near) and space.estimate_s(values) == first
    assert asked == ["estimate_s"] * 3
    there = space.estimate_s(near)
    assert asked == ["estimate_s"] * 4, "of the other parts nothing has changed"
    assert there == _alone(space, near) and first == _alone(space, values)
    # The order of the names does not matter.
    assert space.estimate_s(dict(reversed(near.items()))) == there
    faster = replace(space, hardware=replace(space.hardware, frequency_hz=2 * space.hardware.frequency_hz))
    assert faster.estimate_s(near) == _alone(faster, near) < there


def _alone(space: DesignSpace, values: dict[str, int]) -> float:
    """The estimate of a chain's program for one thread, by its parts' own rule."""
    band_s = 0.0
    for part, name in zip(space.workload.parts, ("first", "second", "third"), strict=True):
        own = {key.removeprefix(f"{name}_"): one for key, one in values.items() if key.startswith(name)}
        assert TILED.legal(part, space.hardware, own)
        band_s += TILED.estimate_s(part, space.hardware, 1, own) + 1e-7
    return band_s * space.workload.bands


@pytest.mark.long
def test_gensor_decides_every_part() -> None:
    space, _ = chain_space("three parts")
    board = fn.board("avx2")
    profile = DeviceProfile("test", board, board.hardware, 1)
    [candidate] = Gensor().propose(space, profile, (), 1, 0)
    values = dict(candidate.decisions)
    assert values["first_rows"] * values["first_vectors"] > 1
    assert values["third_rows"] * values["third_vectors"] > 1
    chance = [space.estimate_s(space.sample(random.Random(seed))) for seed in range(20)]
    assert candidate.estimate_s <= min(chance)


def test_the_trace_carries_every_factor() -> None:
    space, _ = chain_space("two parts with stride 2")
    fn.assert_its_trace_is_the_program(space)


def test_its_version_follows_that_of_its_parts() -> None:
    assert RULE.version == 1 + TILED.version
