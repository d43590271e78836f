"""Attention over a cache whose rounded operands are multiplied in AMX tiles, beside NumPy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from host.lowering.decoding.matrices import highest_text, tile_lines, weight_scale
from host.lowering.decoding.shape import CacheShape
from host.schedules import scheduled_function, space_for
from host.schedules.cached_attention import extents_of
from tests.scheduling.repetitions import in_turn
from tests.unit.lowering.attention.test_cached_attention import ANY_TIME, Case, follow, lowered
from tests.unit.schedules.cpu.tiles import tile_cases

# Numbers of bfloat16 have 8 bits, and results are means of values.
TOLERANCE = 8e-3
CASES = [
    # Half a step of positions at the end of a text; one head of keys for several of queries.
    Case(16, 4, 2, 32, 144, rounded=True),
    Case(64, 2, 2, 64, 256, kept="float16", rounded=True),
    # Windows, caps, bytes; more elements than sums stay in registers, and than queries do.
    Case(32, 3, 1, 96, 272, window=50, rounded=True),
    Case(48, 2, 1, 160, 304, kept="int8", cap=0.5, rounded=True),
    # A block that is larger than the cache.
    Case(32, 1, 1, 64, 48, rounded=True),
    # Blocks that all rows of a tile read, and blocks that a window begins in.
    Case(64, 4, 2, 64, 448, window=200, kept="float16", rounded=True),
    # More rows than a window has positions, as long chunks have.
    Case(96, 2, 1, 64, 288, window=40, kept="float16", rounded=True),
]


def program(case: Case, threads: int, splits: int = 1) -> Any:
    """The function as its rule makes it, callable; the test is skipped where the processor has no tiles."""
    on = tile_cases.board(threads)
    [task] = lowered(case, on).tasks
    hardware = replace(on.hardware, parallel_launch_s=ANY_TIME)
    space = space_for(task, hardware, threads)
    assert extents_of(space.workload, hardware).in_tiles
    values = {"splits": splits, "parallel": threads} if threads > 1 else {}
    function = scheduled_function(space.apply(space.candidate(values, "test")))
    return tile_cases.callable_here(function)


@in_turn("case, form", CASES, [(1, 1), (2, 2)], ids=str)
def test_rows_attend_to_what_stands_before_them(case: Case, form: tuple[int, int]) -> None:
    follow(case, program(case, *form), empty=np.nan, tolerance=TOLERANCE)


@pytest.mark.parametrize(
    "case", [Case(64, 2, 2, 40, 128, rounded=True), Case(36, 1, 1, 64, 128, rounded=True)], ids=str
)
def test_rows_and_elements_that_fill_no_tiles_have_none(case: Case) -> None:
    on = tile_cases.board()
    [task] = lowered(case, on).tasks
    assert not extents_of(space_for(task, on.hardware).workload, on.hardware).in_tiles


def _shape(**changed: Any) -> CacheShape:
    """Extents of an attention of 128 rows in tiles."""
    shape = CacheShape(128, 4, 2, 64, 512, 0, 0.125, 16, kept="float16", rounded=True, in_tiles=True)
    return replace(shape, **changed)


@pytest.mark.parametrize("window", [0, 200])
def test_blocks_that_all_rows_of_a_tile_read_have_no_masks(window: int) -> None:
    text = "\n".join(tile_lines(_shape(window=window), 128, "p"))
    every, _, some = text.partition("else:")
    assert "T.Select" not in every and "T.Select" in some


@pytest.mark.parametrize(
    ("changed", "scale"), [({}, 0.125), ({"cap": 0.5}, 1.0), ({"scale": -0.5}, 1.0)], ids=str
)
def test_scores_are_scaled_once(changed: dict[str, float], scale: float) -> None:
    """Where weights are made of them, unless a cap bounds them first; the highest weight is 1 at most."""
    shape = _shape(**changed)
    text = "\n".join(tile_lines(shape, 128, "p"))
    assert weight_scale(shape) == scale
    assert (f"T.float32({shape.scale!r})" in text) == (scale == 1.0)
    assert (f"T.float32({shape.scale!r})" in highest_text(shape)) == (scale != 1.0)
