"""Narrow groups of convolutions lie side by side in one product: which, and what is zero between them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tvm import tirx

from host.gensor.walk import WalkOptions, construct
from host.schedules import DesignSpace, scheduled_function, space_for
from host.schedules.analysis import analyse
from host.schedules.api import Rule
from host.schedules.cuda.mma.groups import Groups
from host.schedules.cuda.mma.product import Product, product_of
from host.schedules.cuda.mma.rule import RULE
from host.schedules.cuda.tiled.rule import RULE as TILED
from targets import GpuModel
from targets.nvidia import ORIN_NANO
from tests.cuda_emulator.run import emulate
from tests.unit.schedules import functions as fn
from tests.unit.schedules.cpu.dot_cases import groups_task
from tests.unit.schedules.cuda import mma_cases as mma
from tests.unit.schedules.cuda.cuda_cases import gpu_board, gpu_target

VALUES = {
    "rows": 16, "cols": 16, "row_warps": 2, "column_warps": 1, "slices": 1, "depth": 32, "stages": 2,
    "splits": 1, "halo": 0,
}  # fmt: skip


def _space(function: tirx.PrimFunc, gpu: GpuModel = ORIN_NANO) -> DesignSpace:
    return space_for(fn.task(function), gpu_board(gpu).hardware)


def _product(function: tirx.PrimFunc) -> Product:
    product = product_of(analyse(function))
    assert product is not None
    return product


def _fastest_s(function: tirx.PrimFunc, rule: Rule) -> float:
    space = space_for(fn.task(function), gpu_board().hardware, rules=[rule])
    (_, seconds), *_ = construct(space, space.estimate_s, WalkOptions(), 1, 0)
    return seconds


@pytest.mark.parametrize(
    ("sizes", "joined", "batches", "columns", "steps"),
    [
        ((14, 32, 4, 4), 4, 8, 16, 9 * 16),
        ((14, 13, 8, 8), 2, 7, 16, 9 * 16),
        ((14, 32, 16, 16), 1, 32, 16, 9 * 16),
        ((14, 5, 6, 6), 2, 3, 12, 9 * 12),
        ((14, 3, 12, 12), 1, 3, 12, 9 * 12),
        ((14, 2, 64, 4), 2, 1, 8, 9 * 128),
        ((14, 64, 2, 2), 8, 8, 16, 9 * 16),
    ],
)
def test_groups_fill_the_columns_of_the_narrowest_tile(
    sizes: tuple[int, int, int, int], joined: int, batches: int, columns: int, steps: int
) -> None:
    product = _product(mma.in_groups(*sizes))
    assert product.groups.joined == joined
    assert (product.batches, product.columns, product.steps) == (batches, columns, steps)
    assert product.rows == 14 * 14


def test_bytes_of_a_group_follow_those_of_the_one_before() -> None:
    """Weights have four bytes of a column side by side, activations those of all groups of a product."""
    product = product_of(analyse(groups_task(14, 32, 4, 4, "int8", 4).function))
    assert product is not None
    assert (product.groups.joined, product.batches, product.columns, product.steps) == (4, 8, 16, 9 * 16)
    assert (product.left.width, product.right.width) == (16, 4)


def test_iterations_of_a_product_are_those_of_the_function() -> None:
    """Three groups of two columns and five channels in each product; columns are axis 1, channels axis 2."""
    groups = Groups(column=1, size=6, joined=3, columns=24, deep=2, depth=5)
    # Of the right operand and of a result: column 4 of the second product, channel 13 of its depth.
    assert groups.in_function({0: 7, 1: 1, 2: 4, 3: 13}) == {0: 7, 1: 10, 2: 3}
    assert groups.in_function({0: 7, 1: 1, 2: 4}) == {0: 7, 1: 10}
    # Of the left one, whose group is that of the channel.
    assert groups.in_function({0: 7, 1: 1, 3: 13}) == {0: 7, 1: 10, 2: 3}
    assert groups.in_function({0: 7, 1: 1, 3: 4}) == {0: 7, 1: 6, 2: 4}


def test_numbers_of_another_group_do_not_reach_a_result(tmp_path: Path) -> None:
    """A weight of no number spoils its own group alone: between groups it is not multiplied."""
    case = mma.mma_cases()["groups of 4 channels"]
    image, weights, bias = (array.copy() for array in case.inputs)
    weights[1] = np.nan
    output = np.zeros(case.output.shape, case.output.dtype)
    space = _space(case.function)
    program = scheduled_function(space.apply(space.candidate(VALUES, "test")))
    emulate(program, [image, weights, bias, output], gpu_target(), tmp_path)
    assert np.isnan(output[..., 4:8]).all()
    others = [column for column in range(32) if column // 4 != 1]
    np.testing.assert_allclose(output[..., others], case.output[..., others], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("changed", [{"slices": 2}, {"splits": 2}, {"splits": 0}])
def test_groups_share_a_reduction(changed: dict[str, int], tmp_path: Path) -> None:
    """By slices of a block, by blocks, and by shares of multiprocessors."""
    case = mma.groups_case(6, 7, 16, 4)
    gpu = replace(ORIN_NANO, blocks_per_multiprocessor=1)
    space = _space(case.function, gpu)
    values = {**VALUES, "row_warps": 1, **changed}
    assert space.legal(values)
    program = scheduled_function(space.apply(space.candidate(values, "test")))
    output = np.full(case.output.shape, np.nan, case.output.dtype)
    done = emulate(program, [*case.inputs, output], gpu_target(), tmp_path)
    np.testing.assert_allclose(output, case.output, rtol=1e-3, atol=1e-3)
    assert done.counters.products
    assert done.counters.load_conflicts == done.counters.copy_conflicts == 0


def test_more_slices_than_a_narrow_tile_has_results_for_are_refused() -> None:
    space = _space(mma.in_groups(14, 32, 4, 4))
    assert space.legal({**VALUES, "slices": 2})
    assert not space.legal({**VALUES, "slices": 4, "depth": 16})


@pytest.mark.parametrize(
    "sizes", [(56, 32, 4, 4), (28, 32, 8, 8), (28, 13, 8, 8), (7, 55, 8, 8), (56, 32, 4, 4, 2)]
)
def test_tensor_cores_take_less_time_than_cuda_cores_by_the_estimate(sizes: tuple[int, ...]) -> None:
    """Layers of ResNeXt-50 and RegNetY-400M, and one with steps of two."""
    function = mma.in_groups(*sizes)
    assert _space(function).rule is RULE
    assert _fastest_s(function, RULE) < _fastest_s(function, TILED)


def test_every_decision_changes_the_program() -> None:
    space = _space(mma.in_groups(28, 8, 16, 4))
    first = scheduled_function(space.apply(space.candidate(VALUES, "test"))).script()
    for decision in space.decisions:
        changed = ({**VALUES, decision.name: choice} for choice in decision.choices)
        others = [values for values in changed if values != VALUES and space.legal(values)]
        assert others or decision.choices == (VALUES[decision.name],) or decision.name == "column_warps"
        for values in others[:1]:
            assert scheduled_function(space.apply(space.candidate(values, "test"))).script() != first


@pytest.mark.parametrize(
    ("sizes", "changed"),
    [
        ((56, 32, 4, 4), {"stages": 3, "halo": 1}),
        ((28, 32, 8, 8), {"halo": 1}),
        ((7, 55, 8, 8), {"rows": 32, "stages": 3, "halo": 1}),
    ],
)
def test_programs_of_layers_are_those_that_were_compared(
    sizes: tuple[int, int, int, int], changed: dict[str, int]
) -> None:
    """Of ResNeXt-50 and RegNetY-400M on an Orin Nano: the estimates of docs/cuda.md are of these."""
    space = _space(mma.in_groups(*sizes))
    (values, _), *_ = construct(space, space.estimate_s, WalkOptions(), 1, 0)
    assert values == {**VALUES, "rows": 64, **changed}
