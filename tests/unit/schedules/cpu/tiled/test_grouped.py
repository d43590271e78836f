"""The estimate of convolutions in groups: an element for each group, and runs of the channels of a panel."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tvm import te

from host.schedules import DesignSpace, scheduled_function, space_for
from tests.unit.schedules import functions as fn
from tests.unit.schedules.cuda.cuda_cases import grouped

_ONE = {"vectors": 1, "rows2": 1, "panel": 1, "block": 1, "block2": 1, "unroll": 1, "window": 0, "fetch": 0}


def _space(groups: int, columns: int, size: int = 34) -> DesignSpace:
    """Groups of as many channels in as out, in vectors of a group or of 16 columns."""
    function = grouped(size, groups, columns, columns, min(columns, 16))
    return space_for(fn.task(function), fn.board().hardware, 1)


def _part_s(space: DesignSpace, part: str, **changes: int) -> float:
    values = {decision.name: _ONE.get(decision.name, 0) for decision in space.decisions} | changes
    assert space.legal(values), values
    return space.estimate_parts_s(values)[part]


def test_an_element_of_a_group_is_no_load_of_a_whole_vector() -> None:
    """Two loads into all lanes start in a cycle, where one of 64 bytes does: multiply-adds are the bound.

    14x14x512 in 32 groups, tiles of 14 x 1 and 4 x 2 rows: 250 and 261 us; the arithmetic alone 244 (Zen 4).
    """
    space = _space(2, 16)
    hardware = space.hardware
    arithmetic = 32 * 32 * 2 * 9 * 16 / hardware.fma_per_cycle / hardware.frequency_hz
    assert arithmetic < _part_s(space, "compute", rows=16) < 1.12 * arithmetic


def test_a_narrow_load_takes_the_turn_of_a_wide_one() -> None:
    """Vectors of four lanes: each multiply-add has an element of its own, and a tile loads its weights.

    The loads alone take longer than the multiply-adds, and both share ports.
    """
    space = _space(32, 4)
    hardware = space.hardware
    outputs, steps, rows = 32 * 32 * 32, 9 * 4, 8
    loads = outputs * steps * (1.0 + 1.0 / rows)
    bound = loads / hardware.loads_per_cycle / hardware.frequency_hz
    assert _part_s(space, "compute", rows=rows) > 1.2 * bound


@pytest.mark.parametrize(("panel", "factor"), [(2, 1.35), (8, 1.17)])
def test_short_panels_of_groups_fetch_what_lies_beside_them(panel: int, factor: float) -> None:
    """With panels outside of rows, as where the last tile of rows is not full, an image is read in pieces."""
    space = _space(32, 4, 33)
    short, whole = (_part_s(space, "L3", panel=size, rows=5) for size in (panel, 32))
    assert short > factor * whole


@pytest.mark.parametrize("seed", [0, 1])
def test_groups_of_one_column_in_blocks_of_four(seed: int) -> None:
    """The result has every fourth column of what is computed, in a pass of its own."""
    a, w = te.placeholder((1, 9, 6), name="a"), te.placeholder((2, 1, 2, 3, 4), name="w")
    tap, k = te.reduce_axis((0, 2), name="tap"), te.reduce_axis((0, 3), name="k")
    sums = te.compute(
        (1, 8, 8),
        lambda n, x, c: te.sum(a[n, x + tap, c // 4 * 3 + k] * w[c // 4, 0, tap, k, c % 4], axis=[tap, k]),
        name="grouped_conv1d",
    )
    result = te.compute((1, 8, 2), lambda n, x, c: sums[n, x, c * 4] + 1.0, name="epilogue")
    space = space_for(fn.task(te.create_prim_func([a, w, result])), fn.board().hardware, 1)
    program = scheduled_function(space.apply(space.candidate(space.sample(random.Random(seed)), "random")))
    generator = np.random.default_rng(0)
    x, weights = (generator.standard_normal(tuple(map(int, one.shape))).astype("float32") for one in (a, w))
    found = fn.run(program, [x, weights], (1, 8, 2), fn.board().tvm_target)
    windows = np.stack([x[:, :8], x[:, 1:]], 2).reshape(1, 8, 2, 2, 3)
    expected = np.einsum("nxtgk,gtk->nxg", windows, weights[:, 0, :, :, 0]) + 1.0
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
