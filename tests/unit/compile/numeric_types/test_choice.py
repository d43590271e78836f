"""Which groups stay in fp32, with times and errors that are known."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host.compile.numeric_types.choice import Kept, TypeChoice, choose_kept


class _Model:
    """Groups whose times and squared errors add up.

    Args:
        saves: seconds that each group saves in half precision.
        errors: of the outputs where a group alone is in half precision.
    """

    def __init__(self, saves: list[float], errors: list[float]) -> None:
        self.saves, self.errors = saves, errors
        self.measured: list[Kept] = []

    @property
    def single_s(self) -> float:
        return 10.0 + sum(abs(one) for one in self.saves)

    def seconds(self, kept: Kept) -> float:
        return self.single_s - sum(one for index, one in enumerate(self.saves) if index not in kept)

    def error(self, kept: Kept) -> float:
        self.measured.append(kept)
        return math.sqrt(sum(one**2 for index, one in enumerate(self.errors) if index not in kept))

    def chosen(self, tolerance: float) -> TypeChoice:
        return choose_kept(len(self.saves), self.seconds, self.error, self.single_s, tolerance)


def test_a_model_within_the_tolerance_is_in_half_precision_after_one_measurement() -> None:
    model = _Model([1.0, 1.0, 1.0], [0.01, 0.01, 0.01])
    found = model.chosen(0.05)
    assert (found.kept, found.why_single, found.alone) == (frozenset(), "", {})
    assert model.measured == [frozenset()]


def test_one_layer_that_loses_too_much_stays_alone() -> None:
    model = _Model([1.0] * 7, [0.01, 0.01, 0.7, 0.01, 0.01, 0.01, 0.01])
    found = model.chosen(0.05)
    assert (found.kept, found.why_single) == (frozenset({2}), "")
    assert found.alone[2] == 0.7 and len(found.alone) == 7


def test_what_saves_no_time_stays_although_it_loses_nothing() -> None:
    model = _Model([1.0, -0.5, 1.0, 0.0], [0.01, 0.0, 0.01, 0.0])
    found = model.chosen(0.05)
    assert found.kept == {1, 3} and found.saved_s == pytest.approx((1.0, -0.5, 1.0, 0.0))


def test_a_model_that_saves_no_time_is_not_measured() -> None:
    model = _Model([-1.0, -2.0], [0.0, 0.0])
    found = model.chosen(0.05)
    assert found.kept == {0, 1} and found.why_single and not model.measured


def test_of_layers_that_lose_alike_the_one_that_saves_least_stays() -> None:
    model = _Model([5.0, 1.0, 5.0], [0.04, 0.04, 0.04])
    assert model.chosen(0.06).kept == {1}


@pytest.mark.parametrize("error", [math.inf, 1.0])
def test_a_model_in_which_each_layer_is_too_far_off_is_in_fp32(error: float) -> None:
    found = _Model([1.0, 2.0], [error, error]).chosen(0.05)
    assert found.kept == {0, 1} and found.why_single


def test_what_the_tolerance_leaves_has_to_be_faster_than_fp32_as_a_whole() -> None:
    model = _Model([5.0, 0.1], [1.0, 0.0])
    # Compiled in fp32 as a whole, it may take algorithms that half precision excludes.
    found = choose_kept(2, model.seconds, model.error, model.single_s - 1.0, 0.05)
    assert found.kept == {0, 1} and found.why_single


@given(
    st.lists(st.tuples(st.floats(-1.0, 2.0), st.floats(0.0, 1.0)), min_size=1, max_size=16),
    st.floats(0.001, 1.0),
)
def test_a_choice_is_within_the_tolerance_and_its_measurements_are_bounded(
    layers: list[tuple[float, float]], tolerance: float
) -> None:
    model = _Model([saves for saves, _ in layers], [error for _, error in layers])
    found = model.chosen(tolerance)
    assert len(model.measured) <= len(layers) + 2 * math.log2(len(layers)) + 2
    if found.why_single:
        assert found.kept == frozenset(range(len(layers)))
    else:
        assert found.kept in model.measured and model.error(found.kept) <= tolerance
        assert model.seconds(found.kept) < model.single_s
