"""Ways of choosing a program: their probabilities, and costs without the luck of the fastest."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from research.estimate.choices import FEW, choices, least_of_random, log_excess


def test_equal_programs_cost_nothing_however_noisy_their_times_are() -> None:
    draw = np.random.default_rng(0)
    times = np.exp(draw.normal(0.0, 0.1, (300, 24, 4)))
    found = np.array([log_excess(task) for task in times])
    assert abs(found.mean()) < 0.005
    # By the same rounds, the fastest of 24 seems to be faster than the others by far.
    naive = np.log(times.min(axis=2) / times.min(axis=(1, 2))[:, None])
    assert naive.mean() > 0.1


def test_a_program_costs_its_time_over_the_fastest_ones() -> None:
    times = np.array([[2.0, 2.0, 2.0, 9.0], [1.0, 1.0, 7.0, 1.0], [4.0, 8.0, 4.0, 4.0]])
    assert np.exp(log_excess(times)) == pytest.approx([2.0, 1.0, 4.0])


@pytest.mark.parametrize("count", [1, 3, 6])
def test_the_least_of_random_programs_is_as_probable_as_it_is_often(count: int) -> None:
    estimates = np.array([3.0, 1.0, 2.0, 2.0, 5.0, 0.5, 2.0])
    pool = np.array([True, True, True, True, True, False, True])
    expected = np.zeros(len(estimates))
    drawn = list(itertools.combinations(np.flatnonzero(pool), count))
    for programs in drawn:
        least = [number for number in programs if estimates[number] == estimates[list(programs)].min()]
        expected[least] += 1.0 / len(least) / len(drawn)
    assert least_of_random(estimates, pool, count) == pytest.approx(expected)


def test_ways_choose_among_their_own_programs() -> None:
    estimates = np.array([2.0, 1.0, 4.0, 3.0, 0.5, 6.0, 7.0, 8.0, 9.0])
    origins = ["gensor"] * 4 + ["estimate"] + ["uniform"] * 4
    found = choices(estimates, origins, whole_sweep=True)
    assert all(math.isclose(one.sum(), 1.0) for one in found.values())
    assert found["random"] == pytest.approx(np.full(9, 1 / 9))
    assert found["gensor"].argmax() == 0 and found["gensor"].max() == 1.0
    assert found["gensor_few"].argmax() == 1 and found["gensor_few"].max() == 1.0
    assert found["all"].argmax() == 4 and found["all"].max() == 1.0
    assert found["space"] == pytest.approx([0.0] * 5 + [0.25] * 4)
    assert found["space_few"].argmax() == 5 and found["space_few"].max() == 1.0
    assert found["random_few"][4] == pytest.approx(FEW / 9)


def test_a_way_that_needs_more_programs_is_left_out() -> None:
    estimates = np.arange(6.0)
    few = choices(estimates, ["gensor"] * 3 + ["uniform"] * 3, whole_sweep=True)
    assert few.keys() == {"random", "random_few", "gensor", "all"}
    rest = choices(estimates, ["gensor"] + ["uniform"] * 5, whole_sweep=False)
    assert not {"space", "space_few"} & rest.keys()
