"""Which kernels threads share: what the model around a kernel costs decides, not the kernel alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tvm import relax
from tvm.relax import op

from host.compile import static_model
from host.gensor import Gensor
from host.lowering import lower
from host.model import CallGraph, LoweredModel
from host.model.call_graph import KernelCall
from host.plans.sharing import Seconds, Sharing
from host.progress import Silence, StageClock
from host.schedules import space_for
from tests.unit.lowering.harness import board, imported, normal, relax_module, weight
from tests.unit.tuning.simulated import profile

TWO = replace(profile(), threads=2)


def _chain(width: int, rows: int) -> LoweredModel:
    """Three layers, each of which reads what the one before makes."""

    def build(builder: relax.BlockBuilder, x: relax.Expr) -> Any:
        for seed in range(3):
            x = builder.emit(op.tanh(builder.emit(op.matmul(x, weight(width, width, seed=seed)))))
        return x

    return lower(imported(relax_module(build, [normal(rows, width)])), board())


def _shared(lowered: LoweredModel) -> dict[str, int]:
    plan = static_model.propose(lowered, TWO, 0, StageClock(Silence()))
    return {
        task.name: int(dict(plan.chosen[task.workload_hash].decisions)["parallel"]) for task in lowered.tasks
    }


def _shared_by_itself(lowered: LoweredModel) -> set[int]:
    found = set()
    for task in lowered.tasks:
        space = space_for(task, TWO.hardware, 2)
        [best, *_] = Gensor().propose(space, TWO, (), 1, 0)
        found.add(int(dict(best.decisions)["parallel"]))
    return found


def test_short_kernels_that_read_each_other_are_computed_by_one_thread() -> None:
    lowered = _chain(192, 1)
    # Each alone would gain by sharing: 2.6 us in place of 3.2.
    assert _shared_by_itself(lowered) == {2}
    assert set(_shared(lowered).values()) == {1}


def test_their_programs_are_the_best_for_one_thread() -> None:
    lowered = _chain(192, 1)
    plan = static_model.propose(lowered, TWO, 0, StageClock(Silence()))
    [task] = lowered.tasks
    space = space_for(task, TWO.hardware, 1)
    [best, *_] = Gensor().propose(space, replace(TWO, threads=1), (), 1, 0)
    assert plan.chosen[task.workload_hash].estimate_s <= best.estimate_s


def test_long_kernels_stay_shared() -> None:
    assert set(_shared(_chain(512, 64)).values()) == {2}


def test_every_task_has_its_program_when_it_is_given() -> None:
    lowered = _chain(192, 1)
    construction = static_model.Construction(lowered, TWO, 0)
    given = list(construction.each(Silence()))
    assert given == list(lowered.tasks)
    assert {int(dict(one.decisions)["parallel"]) for one in construction.plan.chosen.values()} == {1}


def _two_kernels(width: int) -> Sharing:
    """What a kernel makes is read by another one, once in a run."""
    lowered = _chain(width, 1)
    [task] = lowered.tasks
    tasks = tuple(replace(task, name=name, weight=1) for name in ("maker", "reader"))
    calls = CallGraph((KernelCall("maker"), KernelCall("reader", reads=(0,))))
    return Sharing(replace(lowered, tasks=tasks, calls=calls), TWO.hardware, 2)


def test_a_kernel_is_shared_where_its_neighbour_is() -> None:
    sharing = _two_kernels(4096)
    small = {"reader": Seconds(5e-6, 6.2e-6)}
    # It gains 0.2 us, and 0.7 more as no core waits for what the other one made.
    assert sharing.alone(small, {"maker"}, ()) == frozenset()
    # Alone beside a kernel that one thread computes, it would wait for half of its input.
    assert sharing.alone(small, (), ()) == {"reader"}


def test_threads_that_all_read_everything_wait_for_it() -> None:
    sharing = _two_kernels(4096)
    small = {"reader": Seconds(5e-6, 6.2e-6)}
    assert sharing.handed_s(("maker", "reader"), {"maker", "reader"}, ()) == 0.0
    half = sharing.handed_s(("maker", "reader"), {"maker", "reader"}, {"reader"})
    assert half == sharing.handed_s(("maker", "reader"), {"maker"}, ())
    assert sharing.handed_s(("maker", "reader"), {"reader"}, {"reader"}) == pytest.approx(2 * half)
    assert sharing.alone(small, {"maker"}, {"reader"}) == frozenset()
    assert sharing.alone({"reader": Seconds(5e-6, 5.9e-6)}, {"maker"}, {"reader"}) == {"reader"}


def test_a_model_of_short_kernels_keeps_to_one_thread_for_little() -> None:
    sharing = _two_kernels(16)
    fast, faster = Seconds(9e-6, 10.8e-6), Seconds(8e-6, 11e-6)
    assert sharing.alone({"maker": fast, "reader": fast}, (), ()) == {"maker", "reader"}
    assert sharing.alone({"maker": faster, "reader": faster}, (), ()) == frozenset()
    # Beside ten times as much that one thread computes anyway, it is little.
    assert sharing.alone({"maker": faster, "reader": faster}, (), (), 200e-6) == {"maker", "reader"}
    # Beside one that is worth threads anyway, little is worth it, too.
    assert sharing.alone({"reader": fast}, {"maker"}, ()) == frozenset()


def test_kernels_that_gain_much_are_not_kept_back() -> None:
    sharing = _two_kernels(4096)
    assert not sharing.is_settled("reader", 1e-6)
    assert sharing.is_settled("reader", 20e-6)
