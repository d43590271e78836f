"""Attention over a cache whose rounded operands are multiplied in AMX tiles, beside NumPy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

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
