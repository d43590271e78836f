"""Whatever the decisions, a program computes what its task says."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import tirx

from host.build.kernel import lower_function
from host.errors import ScheduleError
from host.schedules import DesignSpace, scheduled_function, space_for
from tests.scheduling.repetitions import in_turn
from tests.unit.schedules import functions as fn
from tests.unit.schedules.cuda.cuda_cases import grouped, grouped_numpy, kept_numpy

GENERATOR = np.random.default_rng(0)


def _draw(*shape: int) -> np.ndarray:
    return GENERATOR.standard_normal(shape).astype("float32")


def _cases() -> dict[str, tuple]:
    a, w = _draw(23, 40), _draw(3, 40, 16)
    ca, cw, cb = _draw(1, 9, 9, 5), _draw(2, 3, 3, 5, 16), _draw(32)
    da, dw = _draw(1, 12, 12, 24), _draw(3, 3, 24)
    ba, bb = _draw(3, 7, 20), _draw(3, 20, 37)
    sa = _draw(2, 5, 64)
    so, ss, sh = _draw(6, 37), _draw(5, 16), _draw(5, 24)
    sr, ns, nb, sm = _draw(6, 50), _draw(50), _draw(50), _draw(9, 7, 7)
    xa, xb = _draw(1, 7, 13, 3), _draw(1, 7, 13, 3)
    ta = _draw(1, 6, 4, 16)
    ga, gw = _draw(1, 7, 7, 12), _draw(3, 2, 3, 3, 4, 8)
    return {
        "dense": (fn.dense(23, 48, 40), [a, w], fn.dense_numpy(a, w), "tiled"),
        "convolution": (
            fn.convolution(9, 5, 32, 3, 1),
            [ca, cw, cb],
            fn.convolution_numpy(ca, cw, cb, 1),
            "tiled",
        ),
        "convolution stride 2": (
            fn.convolution(9, 5, 32, 3, 2),
            [ca, cw, cb],
            fn.convolution_numpy(ca, cw, cb, 2),
            "tiled",
        ),
        "depthwise": (fn.depthwise(12, 24, 1), [da, dw], fn.depthwise_numpy(da, dw, 1), "tiled"),
        "depthwise stride 2": (fn.depthwise(12, 24, 2), [da, dw], fn.depthwise_numpy(da, dw, 2), "tiled"),
        "batched, 37 columns": (fn.batched(3, 7, 37, 20), [ba, bb], ba @ bb, "tiled"),
        "groups whose blocks are not full": (
            grouped(7, 3, 4, 16, kept=10),
            [ga, gw],
            kept_numpy(grouped_numpy(ga, gw), 3, 10),
            "tiled",
        ),
        "softmax": (fn.softmax(2, 5, 64), [sa], fn.softmax_numpy(sa), "rowwise"),
        "softmax, rows in another order": (
            fn.softmax_of_moved_rows(2, 5, 64),
            [sa],
            fn.softmax_numpy(sa).transpose(1, 0, 2),
            "rowwise",
        ),
        "softmax, 37 long": (fn.softmax(6, 37), [so], fn.softmax_numpy(so), "rowwise"),
        "softmax, 50 long, lowered": (fn.lowered_softmax(6, 50), [sr], fn.softmax_numpy(sr), "rowwise"),
        "layer norm, 50 long, lowered": (
            fn.lowered_layer_norm(6, 50),
            [sr, ns, nb],
            fn.layer_norm_numpy(sr, ns, nb),
            "rowwise",
        ),
        "mean of 7 x 7, lowered": (fn.lowered_mean(9, 7, 7), [sm], sm.mean((1, 2), keepdims=True), "rowwise"),
        "softmax, one vector long": (fn.softmax(5, 16), [ss], fn.softmax_numpy(ss), "rowwise"),
        "softmax of half vectors": (fn.softmax(5, 24), [sh], fn.softmax_numpy(sh), "rowwise"),
        "addition": (fn.addition(1, 7, 13, 3), [xa, xb], np.maximum(xa + xb, 0), "injective"),
        "transpose": (fn.transpose((1, 6, 4, 16), (0, 2, 3, 1)), [ta], ta.transpose(0, 2, 3, 1), "injective"),
    }


CASES = _cases()


def _space(name: str, restrict: str = "", threads: int = 1) -> tuple[DesignSpace, dict[str, object]]:
    board = fn.board(restrict, threads)
    return space_for(fn.task(CASES[name][0], name), board.hardware, threads), board.tvm_target


def _loads(scheduled: tvm.tirx.PrimFunc, target: dict[str, object]) -> list[tvm.ir.TensorLoad]:
    """What the code generator is given to load."""
    loads: list[tvm.ir.TensorLoad] = []
    for function in lower_function(scheduled, "main", tvm.target.Target(target)).functions.values():
        tvm_ffi.structural_walk(function.body, (tvm.ir.TensorLoad, loads.append), order="post")
    return loads


@in_turn("name, threads", CASES, [1, 2])
def test_random_programs_compute_the_task(name: str, threads: int) -> None:
    _function, arguments, expected, rule = CASES[name]
    space, target = _space(name, "avx2", threads)
    assert space.rule.name == rule
    generator = random.Random(threads)
    for _ in range(5):
        candidate = space.candidate(space.sample(generator), "random")
        scheduled = scheduled_function(space.apply(candidate))
        found = fn.run(scheduled, arguments, expected.shape, target)
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5, err_msg=str(candidate.decisions))


@pytest.mark.parametrize("name", CASES)
def test_the_trace_carries_every_factor(name: str) -> None:
    space, _ = _space(name)
    fn.assert_its_trace_is_the_program(space)


@pytest.mark.parametrize("name", ["softmax, one vector long", "softmax of half vectors"])
def test_short_rows_are_reduced_in_vectors(name: str) -> None:
    space, _ = _space(name)
    assert space.hardware.lanes == 16
    assert any(space.legal({"partials": 1, "inline": inline}) for inline in (0, 1))


@pytest.mark.parametrize("name", ["softmax, 50 long, lowered", "mean of 7 x 7, lowered"])
@pytest.mark.parametrize("restrict", ["", "avx2"])
def test_rows_that_are_no_whole_vectors_are_read_in_vectors(name: str, restrict: str) -> None:
    space, target = _space(name, restrict)
    for inline in (0, 1):
        scheduled = scheduled_function(
            space.apply(space.candidate({"partials": 1, "inline": inline}, "test"))
        )
        rows = [load for load in _loads(scheduled, target) if load.source.name.startswith("x0")]
        assert rows
        assert all(tvm_ffi.dtype(str(load.ty)).lanes == space.hardware.lanes for load in rows)


@pytest.mark.parametrize(
    "shape", [(1, 64, 56, 56), (12, 50, 50), (6, 28, 28), (8, 77, 77), (20, 3), (1, 1, 14, 14)]
)
@pytest.mark.parametrize("restrict", ["", "avx2"])
def test_elementwise_chains_run_through_memory_in_vectors(shape: tuple[int, ...], restrict: str) -> None:
    """Whatever the lengths of the axes: no vector is gathered from computed places."""
    board = fn.board(restrict)
    space = space_for(fn.task(fn.addition(*shape)), board.hardware)
    for vectors in (1, 2, 4):
        scheduled = scheduled_function(space.apply(space.candidate({"vectors": vectors, "strip": 0}, "test")))
        wide = [load for load in _loads(scheduled, board.tvm_target) if tvm_ffi.dtype(str(load.ty)).lanes > 1]
        assert wide
        assert all(isinstance(load.indices[0], tvm.tirx.Ramp) for load in wide), vectors


def test_a_processor_without_vectors_computes_elements_wider_than_its_lanes() -> None:
    """A vector of one lane of four bytes holds no element of eight: elements go one by one."""
    board = fn.board("avx2")
    hardware = replace(board.hardware, vector_bits=32)
    values = GENERATOR.integers(-9, 9, (5, 12))
    space = space_for(fn.task(fn.doubled_integers(5, 12)), hardware)
    for vectors in (1, 4):
        scheduled = scheduled_function(space.apply(space.candidate({"vectors": vectors, "strip": 0}, "test")))
        found = fn.run(scheduled, [values], values.shape, board.tvm_target, "int64")
        np.testing.assert_array_equal(found, 2 * values)


def test_partial_results_are_folded_by_halves() -> None:
    """Folded one after the other, 32 partial results are a chain of 32 dependent operations."""
    space, _ = _space("softmax")
    schedule = space.apply(space.candidate({"partials": 2, "inline": 0}, "test"))
    for reduction in ("maximum", "total"):
        loops = schedule.get_loops(schedule.get_sblock(reduction))
        assert int(schedule.get(loops[-1]).extent) == 4


def test_a_tile_is_not_asked_for_elements_that_it_does_not_make() -> None:
    board = fn.board("", 1)
    with pytest.raises(ScheduleError, match="no rule matches"):
        space_for(fn.task(fn.dense_beside(8, 32, 24), "beside"), board.hardware, 1)


def test_candidates_of_elsewhere_are_refused() -> None:
    space, _ = _space("dense")
    good = space.candidate(space.sample(random.Random(0)), "random")
    old = replace(good, space_version=good.space_version + 1)
    with pytest.raises(ScheduleError, match="of version"):
        space.apply(old)
    other = replace(good, workload_hash="another")
    with pytest.raises(ScheduleError, match="another task"):
        space.apply(other)
    values = {**dict(good.decisions), "vectors": 1000}
    with pytest.raises(ScheduleError, match="not legal"):
        space.apply(space.candidate(values, "random"))


def test_neighbours_are_mutual() -> None:
    """From whatever a program steps to, one step leads back."""
    space, _ = _space("convolution")
    here = space.sample(random.Random(3))
    for other in space.neighbours(here):
        assert here in list(space.neighbours(other))


def test_registers_are_not_overcommitted() -> None:
    space, _ = _space("dense", "avx2")
    generator = random.Random(5)
    for _ in range(50):
        values = space.sample(generator)
        assert values["vectors"] * values["rows"] * values["rows2"] + 2 <= 16


def test_weights_too_large_for_the_cache_are_fetched_ahead() -> None:
    """What is fetched changes nothing of the result, whichever loops run in parallel and however rows end."""
    generator = random.Random(3)
    for rows, threads in ((37, 1), (37, 2), (64, 2)):
        board = fn.board("", threads)
        function = fn.dense(rows, 768, 640)
        space = space_for(fn.task(function, "dense"), board.hardware, threads)
        a = np.random.default_rng(0).standard_normal((rows, 640), dtype="float32")
        w = np.random.default_rng(1).standard_normal((768 // 16, 640, 16), dtype="float32")
        fetched = 0
        for _ in range(4):
            candidate = space.candidate(space.sample(generator), "random")
            scheduled = scheduled_function(space.apply(candidate))
            assert ("prefetch" in scheduled.script()) == candidate.value("fetch")
            fetched += candidate.value("fetch")
            expected = fn.dense_numpy(a, w)
            found = fn.run(scheduled, [a, w], expected.shape, board.tvm_target)
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
        assert fetched
    small = space_for(fn.task(fn.dense(64, 64, 64), "in the cache"), board.hardware, 1)
    assert {d.name: d.choices for d in small.decisions}["fetch"] == (0,)


def _fetches(statement: Any, trips: int = 1) -> list[int]:
    """How often each prefetch of a program runs, where nothing skips it."""
    if isinstance(statement, tirx.Evaluate):
        return [trips] if "llvm.prefetch" in str(statement) else []
    if isinstance(statement, tirx.For):
        trips *= int(statement.extent)
    found = []
    for name in ("body", "seq", "then_case", "block"):
        part = getattr(statement, name, None)
        for one in part if name == "seq" and part is not None else [part]:
            if one is not None:
                found += _fetches(one, trips)
    return found


@pytest.mark.parametrize(
    ("rows", "columns", "depth", "values"),
    [
        (49, 512, 2048, {"block": 1, "panel": 1}),
        (49, 512, 2048, {"block": 1, "panel": 4}),
        (49, 512, 2048, {"block": 13, "panel": 1}),
        (512, 8192, 64, {"block": 128, "panel": 4}),
    ],
)
def test_each_line_of_weights_is_fetched_once(
    rows: int, columns: int, depth: int, values: dict[str, int]
) -> None:
    space = space_for(fn.task(fn.dense(rows, columns, depth), "dense"), fn.board().hardware, 1)
    decisions = {one.name: one.choices[0] for one in space.decisions}
    decisions |= {"rows": 4, "vectors": 2, "block": 1, "panel": 1, "fetch": 1} | values
    assert space.legal(decisions)
    function = scheduled_function(space.apply(space.candidate(decisions, "test")))
    [fetched] = _fetches(function.body)
    lines = columns * depth // 16
    # Bursts that do not divide fetch a little more; what was fetched already is skipped by a condition.
    assert lines <= fetched <= 2 * lines


def test_threads_share_rows_and_not_lines_of_memory() -> None:
    """Two panels of channels lie side by side in each pixel: two cores that wrote them would share lines."""
    board = fn.board("", 2)
    space = space_for(fn.task(fn.depthwise(32, 32, 1), "depthwise"), board.hardware, 2)
    values = {decision.name: decision.choices[0] for decision in space.decisions}
    values |= {"pad": 1, "rows2": 4, "parallel": 2}
    schedule = space.apply(space.candidate(values, "test"))
    anchor = schedule.get_sblock(space.workload.anchor_stage.name + "_update")
    loops = [schedule.get(loop) for loop in schedule.get_loops(anchor)]
    kinds = [loop.kind for loop in loops]
    parallel = loops[kinds.index(tvm.tirx.ForKind.PARALLEL)]
    # Bands of rows outside, panels inside: of neighbouring iterations most belong to one core.
    assert int(parallel.extent) == 2 * 2
    [height] = [int(loop.extent) for loop in loops[1:] if int(loop.extent) == 4 and loop.annotations]
    assert height * 4 * 2 == 32
