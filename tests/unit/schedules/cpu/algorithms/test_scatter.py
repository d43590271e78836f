"""Scatters on a CPU: whatever the decisions, results are those of one update after another."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tvm import te

from host.gensor import Gensor
from host.model import DeviceProfile, Task
from host.schedules import DesignSpace, scheduled_function, space_for
from host.schedules.scatter import scatter_of
from tests.scheduling.repetitions import in_turn
from tests.unit.lowering.harness import lowered
from tests.unit.schedules import functions as fn
from tests.unit.schedules.scatter_cases import COMBINED, scatter_model

# Of the data, updates along the axis, the axis, and whether a row of updates has one index.
CASES = {
    "a row of updates for each index": ((9, 70), 31, 0, True),
    "an index for each element": ((5, 37), 40, 0, False),
    "along the last axis": ((3, 11), 26, 1, False),
    "in the middle": ((2, 6, 5), 9, 1, False),
    "of a vector": ((23,), 50, 0, False),
}


def scatter_task(shape: tuple[int, ...], count: int, axis: int, rows: bool, kind: str, dtype: str) -> Task:
    model = lowered(*scatter_model(shape, count, axis, rows, kind, dtype))
    (task,) = [task for task in model.tasks if "scatter" in task.name]
    return task


def _space(task: Task, threads: int = 1) -> DesignSpace:
    space = space_for(task, fn.board("", threads).hardware, threads)
    assert space.rule.name == "scatter"
    return space


def _one_after_another(data, places, updates, strides: tuple[int, ...], kind: str) -> np.ndarray:
    """The result, from the arguments of the function."""
    made, sizes = data.copy(), places.shape
    for o, m, i in itertools.product(*map(range, updates.shape)):
        at = o, int((places[o % sizes[0], m % sizes[1], i % sizes[2]] * strides).sum()), i
        made[at] = COMBINED[kind](made[at], updates[o, m, i])
    return made


def _check(task: Task, threads: int) -> int:
    """Runs programs with their decisions in turn, and returns how many there are."""
    space, draw = _space(task, threads), np.random.default_rng(0)
    scatter = scatter_of(space.workload)
    shape, updates_shape = ((scatter.outer, n, scatter.inner) for n in (scatter.size, scatter.count))
    data, updates = (draw.integers(1, 4, one).astype(scatter.dtype) for one in (shape, updates_shape))
    if scatter.dtype == "float32":
        # Sums of these depend on the order.
        data, updates = ((one * draw.normal(size=one.shape)).astype(one.dtype) for one in (data, updates))
    places = draw.integers(-scatter.size, scatter.size, scatter.places)
    wanted = _one_after_another(data, places, updates, scatter.strides, scatter.reduction)
    every = list(fn.legal_values(space))
    for values in every[:: max(1, len(every) // 3)] + every[-1:]:
        function = scheduled_function(space.apply(space.candidate(values, "test")))
        target = fn.board().tvm_target
        made = fn.run(function, [data, places, updates], shape, target, scatter.dtype)
        np.testing.assert_array_equal(made, wanted, err_msg=str(values))
    return len(every)


@in_turn("case, kind, threads", CASES, COMBINED, [1, 3])
def test_updates_are_combined_in_their_order(case: str, kind: str, threads: int) -> None:
    assert _check(scatter_task(*CASES[case], kind, "float32"), threads) >= threads


@pytest.mark.parametrize(("kind", "dtype"), [("add", "int64"), ("mul", "int32"), ("update", "int8")])
def test_other_types(kind: str, dtype: str) -> None:
    _check(scatter_task((4, 5), 12, 0, False, kind, dtype), 2)


def test_a_block_of_that_name_alone_is_no_scatter() -> None:
    x = te.placeholder((5, 4, 3, 2), name="x")
    function = te.create_prim_func([x, te.compute(x.shape, lambda *at: x[at] + 1.0, name="scatter")])
    assert space_for(fn.task(function), fn.board().hardware).rule.name == "injective"


def _chosen(task: Task, threads: int) -> dict[str, int]:
    board, space = fn.board("", threads), _space(task, threads)
    profile = DeviceProfile("test", board, board.hardware, threads)
    return dict(Gensor().propose(space, profile, (), 1, 0)[0].decisions)


def test_threads_have_places_of_their_own_where_there_are_no_columns_to_share() -> None:
    few, many = (scatter_task((n, 1), 8 * n, 0, True, "add", "float32") for n in (20, 200_000))
    assert _chosen(few, 2)["parallel"] == 1
    assert _chosen(many, 2) == {"columns": 1, "splits": 2, "parallel": 2}


def test_threads_share_the_columns_of_wide_rows() -> None:
    chosen = _chosen(scatter_task((500, 512), 4000, 0, True, "add", "float32"), 2)
    assert chosen["parallel"] == 2
    assert chosen["splits"] == 1 and chosen["columns"] <= 256


@pytest.mark.parametrize("splits", [1, 2])
def test_whole_rows_are_copied_by_the_library(splits: int) -> None:
    space = _space(scatter_task((500, 24), 7, 0, True, "update", "float32"), 2)
    function = scheduled_function(
        space.apply(space.candidate({"columns": 24, "splits": splits, "parallel": 2}, "test"))
    )
    assert str(function).count('"memcpy"') == 1
