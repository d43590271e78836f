"""Attention over a cache whose operands are rounded to bfloat16, beside NumPy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from host.schedules import scheduled_function, space_for
from tests.unit.lowering.attention.test_cached_attention import Case, follow, lowered
from tests.unit.lowering.harness import board as plain_board
from tests.unit.schedules.cpu.bfloat16_cases import assembly, board, callable_here

CASES = [
    Case(64, 4, 2, 64, 192, kept="float16"),
    # An odd number of positions; windows that begin within a pair.
    Case(33, 3, 1, 24, 272, window=7),
    # A tile of one row, and vectors of 16 and of four lanes.
    Case(37, 1, 1, 20, 128, cap=0.5),
    Case(24, 4, 2, 40, 288, kept="int8"),
    Case(36, 2, 2, 160, 144, window=50, kept="float16", cap=0.5),
]


def program(case: Case, threads: int = 1, splits: int = 1) -> Any:
    """The function for a processor that has the products, as its rule makes it."""
    on = board(2)
    [task] = lowered(case, on).tasks
    space = space_for(task, replace(on.hardware, parallel_launch_s=1e-12), threads)
    values = {"splits": splits, "parallel": threads} if threads > 1 else {}
    return scheduled_function(space.apply(space.candidate(values, "test")))


@pytest.mark.parametrize(("threads", "splits"), [(1, 1), (2, 1), (2, 2)])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_rounded_rows_attend_to_what_stands_before_them(case: Case, threads: int, splits: int) -> None:
    """What is no number behind the text is not read; caches are as they are without rounding."""
    made = program(replace(case, rounded=True), threads, splits)
    follow(case, callable_here(made), empty=np.nan, tolerance=1.5e-2)


def test_products_of_pairs_are_instructions() -> None:
    case = Case(64, 4, 2, 64, 192, kept="float16")
    assert "vdpbf16ps" in assembly(program(replace(case, rounded=True)))
    assert "vdpbf16ps" not in assembly(program(case))


NOT_ROUNDED = [
    # So few rows that the cache is read where it lies; a head of 16 and 12 lanes.
    Case(8, 2, 2, 64, 128, rounded=True),
    Case(64, 2, 2, 28, 128, rounded=True),
]


@pytest.mark.parametrize("case", NOT_ROUNDED, ids=str)
def test_some_attention_is_not_rounded(case: Case) -> None:
    assert "bfloat16" not in str(lowered(case, board()).tasks[0].function)


def test_processors_without_the_products_do_not_round() -> None:
    case = replace(CASES[0], rounded=True)
    assert "bfloat16" in str(lowered(case, board()).tasks[0].function)
    assert "bfloat16" not in str(lowered(case, plain_board()).tasks[0].function)
    # Two units of multiply-adds do as much in a cycle.
    on = board()
    wide = replace(on, hardware=replace(on.hardware, fma_per_cycle=2.0))
    assert "bfloat16" not in str(lowered(case, wide).tasks[0].function)


def test_the_estimate_counts_rounded_products_as_faster() -> None:
    on = board()
    exact, rounded = (
        space_for(lowered(replace(CASES[0], rounded=kind), on).tasks[0], on.hardware, 1).estimate_s({})
        for kind in (False, True)
    )
    assert rounded < 0.8 * exact
