"""What the taps of a convolution read, in shared memory at once: where, and what programs compute."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tvm import tirx

from host.schedules import DesignSpace, scheduled_function, space_for
from host.schedules.analysis import analyse
from host.schedules.cuda.mma.product import decided, product_of
from host.schedules.cuda.mma.tiles import tiling_of
from host.schedules.cuda.mma.window import Window
from tests.cuda_emulator.run import emulate
from tests.scheduling.repetitions import in_turn
from tests.unit.schedules import functions as fn
from tests.unit.schedules.cpu.dot_cases import arguments, expected, groups_task
from tests.unit.schedules.cuda import mma_cases as mma
from tests.unit.schedules.cuda.cuda_cases import gpu_board, gpu_target

VALUES = {
    "rows": 16, "cols": 16, "row_warps": 2, "column_warps": 1, "slices": 1, "depth": 32, "stages": 2,
    "splits": 1, "halo": 1,
}  # fmt: skip
CASES = {
    "groups of 4 channels": mma.groups_case(6, 8, 4, 4),
    "groups of 8 channels, the last product not whole": mma.groups_case(9, 3, 8, 8),
    "groups of 16 channels": mma.groups_case(7, 2, 16, 16),
    "groups of 16 channels, 4 columns, the last product not whole": mma.groups_case(5, 6, 16, 4),
    "groups of 4 channels, 5x5": mma.groups_case(6, 4, 4, 4, 1, 5),
    "groups of 2 channels, 4 columns": mma.groups_case(6, 8, 2, 4),
    "16 columns": mma.convolution_case(7, 32, 16, 3, 1, 16),
    "3 columns": mma.convolution_case(9, 16, 3, 3, 1, 3),
}


def _space(function: tirx.PrimFunc) -> DesignSpace:
    return space_for(fn.task(function), gpu_board().hardware)


def _program(space: DesignSpace, values: dict[str, int]) -> tirx.PrimFunc:
    return scheduled_function(space.apply(space.candidate(values, "test")))


@in_turn(
    "name, changed",
    CASES,
    [
        {},
        {"stages": 3, "depth": 16},
        {"slices": 2, "row_warps": 1},
        {"rows": 64, "row_warps": 1, "depth": 64},
    ],
)
def test_products_of_halves(name: str, changed: dict[str, int], tmp_path: Path) -> None:
    case = CASES[name]
    space = _space(case.function)
    values = {**VALUES, **changed}
    (rows,) = (decision.choices for decision in space.decisions if decision.name == "rows")
    values["rows"] = min(values["rows"], max(rows))
    assert space.legal(values)
    output = np.full(case.output.shape, np.nan, case.output.dtype)
    done = emulate(_program(space, values), [*case.inputs, output], gpu_target(), tmp_path)
    np.testing.assert_allclose(output, case.output, rtol=1e-3, atol=1e-3)
    assert not any(resources.spills for resources in done.kernel.resources)
    assert done.counters.products
    assert done.counters.load_conflicts == done.counters.copy_conflicts == 0
    product = product_of(space.workload)
    assert product is not None
    (resources,) = done.kernel.resources
    assert resources.shared_bytes == tiling_of(decided(product, values), values).shared_bytes


@in_turn(
    "form, depth",
    [((6, 8, 4, 4), "int8", 4), ((7, 3, 8, 8), "uint8", 8), ((6, 2, 16, 16), "int8", 16)],
    [32, 64],
)
def test_products_of_bytes(
    form: tuple[tuple[int, int, int, int], str, int], depth: int, tmp_path: Path
) -> None:
    """Around the image lies its zero point; the two chunks of an instruction may be of two taps."""
    sizes, dtype, group = form
    task = groups_task(*sizes, dtype, group)
    space = space_for(task, gpu_board().hardware)
    values = {**VALUES, "depth": depth}
    assert space.legal(values)
    given = arguments(task)
    done = emulate(_program(space, values), given, gpu_target(), tmp_path)
    np.testing.assert_array_equal(given[-1], expected(task, given))
    assert done.counters.products
    assert done.counters.load_conflicts == done.counters.copy_conflicts == 0


def test_taps_are_steps_through_the_padded_image() -> None:
    product = product_of(analyse(mma.in_groups(14, 8, 4, 4)))
    assert product is not None
    window = Window(
        across=product.left.outer[1], kept=14, width=16, places=256, taps=(3, 3), steps=(16, 1), chunks=2
    )
    assert product.window == window
    assert window.further == 2 * 16 + 2
    windowed = decided(product, {"halo": 1})
    assert (product.rows, windowed.rows) == (14 * 14, 14 * 16)
    assert decided(product, {"halo": 0}) == decided(product, {}) == product


@pytest.mark.parametrize(
    "function",
    [
        mma.in_groups(14, 8, 4, 4, 2),
        mma.in_groups(14, 8, 4, 4, 1, 1),
        mma.in_groups(14, 8, 3, 3),
        mma.in_groups(14, 3, 16, 24),
        mma.convolution(14, 64, 64, 3, 1),
    ],
    ids=["stride 2", "1x1", "channels that fill no chunk", "many columns", "no groups"],
)
def test_other_convolutions_copy_each_tap(function: tirx.PrimFunc) -> None:
    assert "halo" not in {decision.name for decision in _space(function).decisions}


def test_a_block_with_a_window_has_its_reduction_to_itself() -> None:
    space = _space(mma.in_groups(14, 8, 16, 4))
    assert space.legal({**VALUES, "splits": 2, "halo": 0})
    assert not space.legal({**VALUES, "splits": 2})


def test_fewer_bytes_are_copied_by_the_estimate() -> None:
    space = _space(mma.in_groups(56, 32, 4, 4))
    values = {**VALUES, "rows": 64}
    assert space.estimate_s(values) < 0.95 * space.estimate_s({**values, "halo": 0})
