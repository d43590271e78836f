from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import stdtrit

from host.statistics import Estimate, mean_of, paired_ratio, ratio_of, spread_of, t975


def unpaired_ratio(numerator: list[float], denominator: list[float]) -> Estimate:
    return ratio_of(spread_of(numerator), spread_of(denominator))


def test_bounds_of_three_repetitions() -> None:
    # Logarithms -1, 0, 1: mean 0, deviation 1, Student's t of 2 degrees 4.303.
    estimate = mean_of([float(np.exp(value)) for value in (-1, 0, 1)])
    assert estimate.value == pytest.approx(1.0)
    assert np.log(estimate.high or 0) == pytest.approx(4.3027 / 3**0.5, rel=1e-4)
    assert estimate.low == pytest.approx(1 / (estimate.high or 0))
    assert not mean_of([1.0, 2.0]).bounded
    # Fisher and Yates, Statistical Tables, table III.
    known = {0: 12.706, 1: 12.706, 2: 4.303, 10: 2.228, 30: 2.042, 60: 2.000, 120: 1.980}
    assert {freedom: round(t975(freedom), 3) for freedom in known} == known


def test_quantiles_are_those_of_scipy() -> None:
    # Its own are off by 2e-11 for one degree of freedom, where the quantile is tan(0.475 pi).
    for freedom in (*range(1, 60), 119, 999, 9998):
        assert t975(freedom) == pytest.approx(float(stdtrit(freedom, 0.975)), rel=1e-9)
    assert t975(1) == pytest.approx(math.tan(0.475 * math.pi), rel=1e-14)


def test_a_ratio_of_pairs_cancels_what_they_share() -> None:
    drift = np.random.default_rng(0).uniform(0.5, 2.0, 8)
    shared = paired_ratio(list(1.2 * drift), list(drift))
    assert (shared.low, shared.high) == pytest.approx((1.2, 1.2))
    apart = unpaired_ratio(list(1.2 * drift), list(drift))
    assert apart.low is not None and apart.high is not None and apart.low < 1.0 < apart.high
    with pytest.raises(ValueError, match="cannot be paired"):
        paired_ratio([1.0], [1.0, 2.0])
    with pytest.raises(ValueError, match="positive"):
        mean_of([1.0, 0.0])


positive = st.lists(st.floats(1e-6, 1e3), min_size=3, max_size=12)


@given(positive, positive)
@settings(max_examples=50, deadline=None)
def test_the_inverse_has_the_inverse_bounds(a: list[float], b: list[float]) -> None:
    there, back = unpaired_ratio(a, b), unpaired_ratio(b, a)
    assert there.low is not None and back.high is not None
    assert there.value * back.value == pytest.approx(1.0)
    assert there.low * back.high == pytest.approx(1.0)
    assert there.low <= there.value


@pytest.mark.parametrize("size", [3, 6, 12])
def test_noise_alone_is_seldom_taken_for_a_change(size: int) -> None:
    draw = np.random.default_rng(size)
    wrong = 0
    for _ in range(2000):
        a, b = draw.lognormal(0.0, 0.05, (2, size))
        estimate = unpaired_ratio(list(a), list(b))
        assert estimate.low is not None and estimate.high is not None
        wrong += not estimate.low <= 1.0 <= estimate.high
    assert wrong / 2000 < 0.06
