"""Scatters on a GPU: results are those of one update after another, whatever the order of the threads."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from host.lowering import lower
from host.model import Task
from host.schedules import DesignSpace, scheduled_function, space_for
from host.schedules.scatter import scatter_of
from targets.nvidia import ORIN_NANO
from tests.cuda_emulator.run import emulate
from tests.unit.lowering.harness import imported, relax_module
from tests.unit.schedules.cuda.cuda_cases import gpu_board, gpu_target
from tests.unit.schedules.scatter_cases import COMBINED, scatter_model

# Of the data, updates along the axis, the axis, and whether a row of updates has one index.
CASES = {
    "a row of updates for each index": ((9, 70), 31, 0, True),
    "an index for each element": ((5, 7), 40, 0, False),
    "along the last axis": ((3, 11), 6, 1, False),
    "in the middle": ((2, 6, 5), 9, 1, False),
}


def _function(shape: tuple[int, ...], count: int, axis: int, rows: bool, kind: str, dtype: str) -> Task:
    """The task of a scatter on a GPU."""
    model = lower(imported(relax_module(*scatter_model(shape, count, axis, rows, kind, dtype))), gpu_board())
    (task,) = [task for task in model.tasks if "scatter" in task.name]
    return task


def _space(task: Task) -> DesignSpace:
    space = space_for(task, gpu_board().hardware)
    assert space.rule.name == "cuda_scatter"
    return space


def _one_after_another(
    data: np.ndarray, places: np.ndarray, updates: np.ndarray, strides: tuple[int, ...], kind: str
) -> np.ndarray:
    """The result, from the arguments of the function."""
    made = data.copy()
    sizes = places.shape
    for o, m, i in itertools.product(*map(range, updates.shape)):
        numbers = places[o % sizes[0], m % sizes[1], i % sizes[2]]
        made[o, int((numbers * strides).sum()), i] = COMBINED[kind](
            made[o, int((numbers * strides).sum()), i], updates[o, m, i]
        )
    return made


def _check(task: Task, warps: int, folder: Path, alike: bool = False) -> None:
    """Runs a program with random places, or with the same one for all updates."""
    space, draw = _space(task), np.random.default_rng(0)
    scatter = scatter_of(space.workload)
    shape, updates_shape = ((scatter.outer, n, scatter.inner) for n in (scatter.size, scatter.count))
    kinds = [np.dtype(str(parameter.ty.dtype)) for parameter in task.function.params]
    data, updates = (draw.integers(1, 4, one).astype(kinds[0]) for one in (shape, updates_shape))
    if kinds[0].kind == "f":
        # Sums of these depend on the order.
        data, updates = ((one * draw.normal(size=one.shape)).astype(kinds[0]) for one in (data, updates))
    places = draw.integers(-scatter.size, scatter.size, scatter.places).astype(kinds[1])
    if alike:
        places[:] = 1
    made = np.zeros(shape, kinds[0])
    function = scheduled_function(space.apply(space.candidate({"warps": warps}, "test")))
    done = emulate(function, [data, places, updates, made], gpu_target(), folder)
    wanted = _one_after_another(data, places, updates, scatter.strides, scatter.reduction)
    np.testing.assert_array_equal(made, wanted)
    assert not any(one.spills for one in done.kernel.resources)


@pytest.mark.parametrize("kind", COMBINED)
def test_updates_are_combined_in_their_order(kind: str, tmp_path: Path) -> None:
    for number, case in enumerate(CASES.values()):
        folder = tmp_path / str(number)
        folder.mkdir()
        _check(_function(*case, kind, "float32"), (1, 2, 4, 8)[number], folder)


@pytest.mark.parametrize(("kind", "dtype"), [("add", "int64"), ("mul", "int32"), ("update", "int8")])
def test_other_types(kind: str, dtype: str, tmp_path: Path) -> None:
    _check(_function((4, 5), 12, 0, False, kind, dtype), 2, tmp_path)


@pytest.mark.parametrize("kind", ["update", "add"])
def test_many_updates_of_one_place(kind: str, tmp_path: Path) -> None:
    """A list that is longer than the root of the number of updates is not searched again and again."""
    _check(_function((3, 33), 50, 0, True, kind, "float32"), 1, tmp_path, alike=True)


def test_an_estimate_counts_what_is_moved() -> None:
    spaces = [_space(_function((rows, 64), 300, 0, True, "add", "float32")) for rows in (8_400, 84_000)]
    small, large = (space.estimate_s({"warps": 4}) for space in spaces)
    gpu = ORIN_NANO
    moved_s = 2 * 4 * 84_000 * 64 / gpu.level("DRAM").bandwidth_bytes_per_s
    assert 3 * small < large + 3 * gpu.launch_s
    # A thread for 64 columns would have 84,000 accesses of memory one after the other.
    assert moved_s < large < 2 * moved_s
