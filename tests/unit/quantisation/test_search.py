"""The search for layers that stay in floats, with errors that are known."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host.quantisation.search import grouped, least_kept, most_groups, steps


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=150), st.floats(0.001, 2.0))
def test_the_fewest_layers_are_kept_where_errors_add_up(alone: list[float], bound: float) -> None:
    order = sorted(range(len(alone)), key=lambda index: -alone[index])
    calls: list[int] = []

    def error(kept: Sequence[int]) -> float:
        calls.append(len(kept))
        return math.sqrt(sum(alone[index] ** 2 for index in set(range(len(alone))) - set(kept)))

    found = least_kept(order, error, bound)
    assert len(calls) == len(set(calls)) <= 2 * math.log2(len(alone)) + 2
    by_count = [error(order[:count]) for count in range(len(alone))]
    fitting = [count for count, one in enumerate(by_count) if one <= bound]
    if not fitting:
        assert found is None
        return
    assert found is not None
    assert found.kept == tuple(order[: fitting[0]])
    assert found.tried[len(found.kept)] <= bound
    assert list(found.tried) == sorted(found.tried)


def test_a_model_without_a_quantised_layer_is_no_answer() -> None:
    assert least_kept([0, 1, 2], lambda kept: 1.0, 0.5) is None


@pytest.mark.parametrize(
    ("layers", "size"), [(1, 10**6), (53, 14 * 10**6), (400, 10**6), (50, 10**9), (7, 1)]
)
def test_every_layer_is_in_one_group_and_large_models_have_fewer(layers: int, size: int) -> None:
    groups = grouped(layers, most_groups(size))
    assert [index for group in groups for index in group] == list(range(layers))
    assert len(groups) <= 160
    assert len(grouped(layers, most_groups(10**12))) <= min(16, layers)


def test_the_steps_double_and_leave_the_last_out() -> None:
    assert steps(1) == [0]
    assert steps(9) == [0, 1, 2, 4, 8]
    assert steps(8) == [0, 1, 2, 4]
