"""Threads share rows where the last tile of rows is not full, and panels where that moves less."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
from tvm import tirx

from host.schedules import DesignSpace, scheduled_function, space_for
from host.schedules.cpu.tiled.roles import Counts, Roles, counts_of, parallel_chunks, roles_of, row_bands
from tests.unit.schedules import functions as fn

BOARD = fn.board(cores=2)
# Rows that no tile of several rows divides.
ROWS = 61


def _space(rows: int, columns: int, depth: int) -> DesignSpace:
    return space_for(fn.task(fn.dense(rows, columns, depth)), BOARD.hardware, 2)


def _tiles(space: DesignSpace, values: dict[str, int]) -> tuple[Roles, Counts]:
    roles = roles_of(space.workload.anchor_stage, BOARD.hardware)
    assert roles is not None
    return roles, counts_of(roles, values)


def _bands(space: DesignSpace, values: dict[str, int]) -> int:
    return row_bands(space.workload.anchor_stage, *_tiles(space, values), 2)


def _parallel_extents(function: tirx.PrimFunc) -> list[int]:
    return [int(extent) for extent in re.findall(r"T\.parallel\((\d+)\)", function.script())]


@pytest.mark.parametrize("rows", [4, 8])
def test_bands_of_rows_run_in_parallel_and_compute_the_product(rows: int) -> None:
    space = _space(ROWS, 32, 16)
    values = {**space.sample(random.Random(0)), "rows": rows, "rows2": 1, "block": 1, "block2": 1}
    values |= {"vectors": 2, "panel": 1, "unroll": 1, "window": 0, "pad": 0, "fetch": 0, "parallel": 2}
    assert _bands(space, values) == 2
    function = scheduled_function(space.apply(space.candidate(values, "gensor")))
    assert _parallel_extents(function) == [2]
    generator = np.random.default_rng(rows)
    a = generator.standard_normal((ROWS, 16)).astype("float32")
    w = generator.standard_normal((2, 16, 16)).astype("float32")
    result = fn.run(function, [a, w], (ROWS, 32), BOARD.tvm_target)
    np.testing.assert_allclose(result, fn.dense_numpy(a, w), rtol=1e-4, atol=1e-4)


def test_bands_have_several_tiles_and_share_the_rows_evenly() -> None:
    space = _space(ROWS, 32, 16)
    roles, _ = _tiles(space, {**space.sample(random.Random(0)), "rows": 8, "block": 1})
    anchor = space.workload.anchor_stage
    for rows in range(2, 17):
        values = {"rows": rows, "rows2": 1, "block": 1, "block2": 1, "vectors": 1, "panel": 1, "pad": 0}
        counts = counts_of(roles, values)
        bands = row_bands(anchor, roles, counts, 2)
        if bands > 1:
            assert counts.ragged_rows and counts.tile_blocks % bands == 0 and counts.tile_blocks >= 2 * bands
        assert parallel_chunks(anchor, roles, counts, 2) == bands * counts.panel_blocks


def test_panels_are_shared_where_weights_are_larger_than_rows() -> None:
    values = {"rows": 8, "rows2": 1, "block": 1, "block2": 1, "vectors": 1, "panel": 1, "pad": 0}
    assert _bands(_space(ROWS, 32, 16), values) == 2
    assert _bands(_space(ROWS, 512, 256), values) == 1


@pytest.mark.parametrize("columns, keeps", [(197, True), (208, False)])
def test_blocks_of_tiles_in_bands_are_estimated_with_the_conditions_that_stay_in_them(
    columns: int, keeps: bool
) -> None:
    """Rows and vectors that are both not full: TVM separates them in bands of single tiles alone."""
    space = space_for(fn.task(fn.batched(1, 197, columns, 64)), BOARD.hardware, 2)
    values = {"vectors": 1, "rows": 5, "rows2": 1, "panel": 1, "block": 1, "block2": 1, "unroll": 1}
    values |= {"window": 0, "pad": 0, "fetch": 0, "parallel": 2}
    assert _bands(space, values) == _bands(space, {**values, "block": 5}) == 2
    single, blocks = (space.estimate_s({**values, "block": block}) for block in (1, 5))
    assert (blocks > 3 * single) == keeps
