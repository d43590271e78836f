from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from tvm.script import tirx as T

from host import bundle
from host.compile import static_model as compiling
from host.compile.bundle_builder import BundleBuilder
from host.compile.model_compiler import ModelCompiler
from host.compile.model_file import read_model
from host.compile.static_model import Plan
from host.compile.variants import (
    ALONE,
    FASTEST,
    SHARED,
    engine_variants,
    fewer_threads,
    least_traffic,
    least_traffic_plan,
    movement_joules,
    picojoules_a_byte,
    plan_of_all_threads,
    plan_of_one_thread,
    variants_of,
)
from host.deploy import DeployOptions
from host.gensor import Gensor
from host.model import Candidate, Measurement, Task
from host.progress import Silence, StageClock
from host.records import Record, RecordStore
from host.records.store import profile_data
from host.schedules import DesignSpace, space_for
from tests.integration.small_models import floats, save
from tests.unit.compare.samples import measurement
from tests.unit.tuning.simulated import profile


@T.prim_func(s_tir=True)
def dense(
    x: T.Buffer((512, 1024), "float32"),
    w: T.Buffer((1024, 1024), "float32"),
    y: T.Buffer((512, 1024), "float32"),
) -> None:
    T.func_attr({"tirx.noalias": True})
    for i, j, k in T.grid(512, 1024, 1024):
        with T.sblock("y"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                y[vi, vj] = T.float32(0)
            y[vi, vj] = y[vi, vj] + x[vi, vk] * w[vk, vj]


TASK = Task("dense", dense, 1, "hash-dense", 2.0 * 512 * 1024 * 1024)


def ranked() -> tuple[DesignSpace, list[Candidate]]:
    """Programs of one task, the one that moves most first."""
    space = space_for(TASK, profile().hardware)
    found = {
        one.decisions: one for seed in range(4) for one in Gensor().propose(space, profile(), (), 8, seed)
    }
    moved = {key: movement_joules(space, dict(key)) for key in found}
    return space, sorted(found.values(), key=lambda one: -(moved[one.decisions] or 0.0))


def record(candidate: Candidate, milliseconds: float, **more: object) -> Record:
    measured: Measurement = replace(measurement(milliseconds), **more)  # type: ignore[arg-type]
    return Record(candidate, profile_data(profile()), measured)


def test_programs_differ_in_what_they_move() -> None:
    space, programs = ranked()
    most, least = (movement_joules(space, dict(one.decisions)) for one in (programs[0], programs[-1]))
    assert most is not None and least is not None
    # No less than reading the weights once, no more than reading them for each row.
    once = 1024 * 1024 * 4 * 2.5e-12
    assert once < least < 0.9 * most < 512 * 1024 * 1024 * 4 * 250e-12


def test_a_farther_memory_costs_more_a_byte() -> None:
    hardware = profile().hardware
    costs = [picojoules_a_byte(hardware, level.name) for level in hardware.levels]
    assert costs == sorted(costs) and costs[-1] > 50 * costs[0]


def test_the_least_moving_of_the_nearly_fastest_is_taken() -> None:
    space, programs = ranked()
    fast, frugal_one = programs[0], programs[-1]
    present = dict(fast.decisions)
    for milliseconds, taken in ((1.04, True), (1.07, False), (0.9, True)):
        records = [record(fast, 1.0), record(frugal_one, milliseconds)]
        found = least_traffic(records, space, present)
        assert (found is not None and found.candidate == frugal_one) == taken, milliseconds
    # Nothing to gain for one that moves least already; nothing to be had of a throttled measurement.
    assert (
        least_traffic([record(fast, 1.0), record(frugal_one, 1.0)], space, dict(frugal_one.decisions)) is None
    )
    throttled = [record(fast, 1.0), record(frugal_one, 1.0, throttled=True)]
    assert least_traffic(throttled, space, present) is None


def test_a_frugal_plan_comes_from_the_records_or_not_at_all(tmp_path: Path) -> None:
    space, programs = ranked()
    plan = Plan({"hash-dense": space}, {"hash-dense": programs[0]}, {})
    path = tmp_path / "records.sqlite"
    assert least_traffic_plan(plan, profile(), path) is None
    with RecordStore(path) as store:
        store.append([record(programs[0], 1.0), record(programs[-1], 1.02)])
    found = least_traffic_plan(plan, profile(), path)
    assert found is not None and dict(found.chosen) == {"hash-dense": programs[-1]}
    assert least_traffic_plan(found, profile(), path) is None
    # Another number of threads is another profile, with records of its own.
    assert least_traffic_plan(plan, replace(profile(), threads=2), path) is None


@pytest.mark.parametrize(("threads", "expected"), [(1, ()), (2, (1,)), (3, (1,)), (4, (2, 1)), (8, (4, 1))])
def test_fewer_threads_are_half_and_one(threads: int, expected: tuple[int, ...]) -> None:
    assert fewer_threads(threads) == expected
    wide = engine_variants("onnxruntime", Path("m.onnx"), threads, wider=True)
    assert [one.threads for one in wide] == [threads, *expected]
    assert len(engine_variants("onnxruntime", Path("m.onnx"), threads, wider=False)) == 1


def test_fewer_threads_have_programs_of_their_own(tmp_path: Path) -> None:
    records = tmp_path / "records.sqlite"
    # Large enough to be worth four threads.
    weights = {"w": np.random.default_rng(0).normal(size=(512, 1024)).astype(np.float32)}
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    model = save(tmp_path / "net.onnx", [node], [floats("x", 128, 512)], [floats("y", 128, 1024)], weights)
    options = DeployOptions(model, objective="energy", records=str(records))
    clock = StageClock(Silence())
    wide = replace(profile(), threads=4)
    builder = BundleBuilder(ModelCompiler(options, wide, tmp_path, clock))
    made = builder.compile(read_model(options, clock))
    found = variants_of(builder, made, wider=True)
    assert [(one.name, one.threads) for one in found] == [(FASTEST, 4), (FASTEST, 2), (FASTEST, 1)]
    assert (found[0].path / "lib.so").read_bytes() != (found[-1].path / "lib.so").read_bytes()
    for one in found:
        assert bundle.load(one.path).threads == one.threads
        plan = compiling.propose(made.lowered, replace(wide, threads=one.threads), options.seed, clock)
        assert {task.workload_hash: dict(task.decisions) for task in one.tasks} == {
            key: dict(candidate.decisions) for key, candidate in plan.chosen.items()
        }

    # What was measured with all threads is the better guess while nothing is known of fewer.
    assert made.plan is not None
    known = [Record(one, profile_data(wide), measurement(1.0)) for one in made.plan.chosen.values()]
    with RecordStore(records) as store:
        store.append(known)
    (tmp_path / "second").mkdir()
    second = builder.with_profile(wide, tmp_path / "second")
    again = variants_of(second, second.compile(read_model(options, clock)), wider=True)
    assert len({(one.path / "lib.so").read_bytes() for one in again}) == 1
    assert [bundle.load(one.path).threads for one in again] == [4, 2, 1]


def _product_for_two(tmp_path: Path, width: int, rows: int) -> tuple[BundleBuilder, compiling.Compiled]:
    """A product, compiled for two threads."""
    weights = {"w": np.random.default_rng(0).normal(size=(width, width)).astype(np.float32)}
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    inputs, outputs = [floats("x", rows, width)], [floats("y", rows, width)]
    model = save(tmp_path / "net.onnx", [node], inputs, outputs, weights)
    options = DeployOptions(model, records=str(tmp_path / "records.sqlite"))
    clock = StageClock(Silence())
    two = replace(profile(), threads=2)
    builder = BundleBuilder(ModelCompiler(options, two, tmp_path, clock))
    return builder, builder.compile(read_model(options, clock))


def _compiled_for_two(tmp_path: Path, width: int, rows: int) -> tuple[BundleBuilder, compiling.Compiled]:
    """A product whose kernel two threads share."""
    builder, made = _product_for_two(tmp_path, width, rows)
    assert made.plan is not None
    shared, two = {}, builder.compiler.profile
    for key, space in made.plan.spaces.items():
        only = space.fixed({"parallel": 2})
        assert only is not None
        [shared[key], *_] = Gensor().propose(only, two, (), 1, 0)
    return builder, replace(made, plan=replace(made.plan, chosen=shared))


def test_short_runs_are_measured_with_programs_of_one_thread_too(tmp_path: Path) -> None:
    builder, made = _compiled_for_two(tmp_path, 192, 1)
    found = variants_of(builder, made, wider=False)
    assert [(one.name, one.threads, one.instead_of) for one in found] == [
        (FASTEST, 2, ""),
        (ALONE, 2, FASTEST),
    ]
    assert {task.decisions["parallel"] for task in found[1].tasks} == {1}
    assert bundle.load(found[1].path).threads == 2


def test_programs_of_one_thread_are_none_of_the_records(tmp_path: Path) -> None:
    builder, made = _compiled_for_two(tmp_path, 192, 1)
    assert made.plan is not None
    recalled = replace(made.plan, from_database=frozenset(made.plan.chosen))
    alone = plan_of_one_thread(replace(made, plan=recalled), builder.compiler.profile, 0)
    assert alone is not None and alone.from_database == frozenset()


def test_what_threads_make_much_faster_is_not_measured_with_one(tmp_path: Path) -> None:
    builder, made = _compiled_for_two(tmp_path, 512, 64)
    assert plan_of_one_thread(made, builder.compiler.profile, 0) is None
    assert [one.name for one in variants_of(builder, made, wider=False)] == [FASTEST]


@pytest.mark.parametrize(("width", "rows", "measured"), [(256, 64, [FASTEST, SHARED]), (192, 1, [FASTEST])])
def test_one_thread_is_measured_beside_all_where_kernels_promise_much(
    width: int, rows: int, measured: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("host.plans.sharing._LATE_STARTS", 1000.0)
    builder, made = _product_for_two(tmp_path, width, rows)
    assert {task.decisions["parallel"] for task in made.tasks} == {1}
    found = variants_of(builder, made, wider=False)
    assert [one.name for one in found] == measured
    for one in found[1:]:
        assert one.instead_of == FASTEST and {task.decisions["parallel"] for task in one.tasks} == {2}
    if made.plan is not None and len(found) > 1:
        known = replace(made.plan, from_database=frozenset(made.plan.chosen))
        assert plan_of_all_threads(replace(made, plan=known), builder.compiler.profile, 0) is None
