"""A part of every family of repetitions runs each time: every case, and every value of each parameter."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from tests.scheduling.repetitions import in_turn, seeds


def parts(mark: pytest.MarkDecorator) -> tuple[list[Any], list[Any]]:
    """The values that run each time, and those behind the marker."""
    names, found = mark.args
    assert all(len(one.values) == names.count(",") + 1 for one in found)
    by_hand = [one.values for one in found if [mark.name for mark in one.marks] == ["long"]]
    return [one.values for one in found if not one.marks], by_hand


def test_the_first_seed_runs_each_time() -> None:
    assert parts(seeds(3)) == ([(0,)], [(1,), (2,)])


@pytest.mark.parametrize(
    ("values", "count"),
    [(("abcd", (1, 2)), 4), (("ab", (1, 2), "xyz"), 4), (("abcd", (1, 2), (True, False)), 8), (("ab",), 1)],
)
def test_values_of_the_last_parameter_take_turns(values: tuple[Any, ...], count: int) -> None:
    names = ", ".join(f"p{number}" for number in range(len(values)))
    each_time, by_hand = parts(in_turn(names, *values))
    assert len(each_time) == count
    assert sorted([*each_time, *by_hand], key=str) == sorted(product(*values), key=str)
    assert {one[:-1] for one in each_time} == set(product(*values[:-1]))
    if count >= len(values[-1]):
        assert {one[-1] for one in each_time} == set(values[-1])


def test_no_value_of_the_last_parameter_goes_with_one_of_the_others_alone() -> None:
    each_time, _ = parts(in_turn("name, kind, threads", "abcd", "xy", (1, 2)))
    assert {one[1:] for one in each_time} == set(product("xy", (1, 2)))
