from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from host.compare.entrants import ratio_between
from host.compare.pareto import pareto
from host.compare.selection import select_variant, select_variants
from host.errors import MeasureError
from tests.unit.compare.power_samples import point

figure = st.floats(0.5, 50.0)


def test_a_point_that_is_worse_in_both_is_dominated() -> None:
    fast, frugal, bad = point(1, 9, "a"), point(2, 4, "b"), point(3, 5, "c")
    found = pareto([bad, frugal, fast])
    assert [one.name for one in found.front] == ["a", "b"]
    assert dict(found.dominated) == {bad.title: frugal.title}


def test_equal_points_stay_and_a_tie_in_one_figure_is_decided_by_the_other() -> None:
    twins = [point(1, 5, "a"), point(1, 5, "b")]
    assert len(pareto(twins).front) == 2
    found = pareto([point(1, 5, "a"), point(1, 6, "b"), point(2, 5, "c")])
    assert [one.name for one in found.front] == ["a"]
    assert set(found.dominated) == {"b, 1 thread", "c, 1 thread"}


@given(st.lists(st.tuples(figure, figure), min_size=1, max_size=12))
@settings(max_examples=60, deadline=None)
def test_the_front_is_what_nobody_beats(pairs: list[tuple[float, float]]) -> None:
    points = [point(ms, mj, f"v{index}", noise=0.0) for index, (ms, mj) in enumerate(pairs)]
    found = pareto(points)
    on_front = {one.name for one in found.front}

    def beats(a: tuple[float, float], b: tuple[float, float]) -> bool:
        return a[0] <= b[0] and a[1] <= b[1] and a != b

    values = [(one.value("latency") or 0.0, one.value("energy") or 0.0) for one in points]
    for index, pair in enumerate(values):
        assert (f"v{index}" in on_front) == (not any(beats(other, pair) for other in values))
    assert len(found.front) + len(found.dominated) == len(points)
    assert {name.split(",")[0] for name in found.dominated.values()} <= on_front


def test_a_front_needs_energy_of_one_boundary_from_a_board_that_was_not_slowed_down() -> None:
    assert pareto([point(1, None)]).reason == "no sensor"
    mixed = pareto([point(1, 5, "a"), point(2, 4, "b", boundary="package")])
    assert not mixed.front
    assert "board" in mixed.reason and "package" in mixed.reason
    throttled = pareto([point(1, 9, "a"), point(0.5, 1, "b", throttled=True)])
    assert [one.name for one in throttled.front] == ["a"]


def test_the_fastest_stays_unless_less_energy_is_shown() -> None:
    fast = point(1.0, 10.0, "fast")
    for millijoules, taken in ((8.0, "slow"), (9.99, "fast"), (12.0, "fast")):
        best, why = select_variant([fast, point(1.03, millijoules, "slow", noise=0.01)], "energy")
        assert best.name == taken
        assert ("95% bound" in why) == (taken == "slow")
    assert select_variant([fast, point(1.03, 8.0, "slow")], "latency")[0].name == "fast"


def test_the_energy_delay_product_weighs_both() -> None:
    fast, slow = point(1.0, 10.0, "fast"), point(2.0, 6.0, "slow")
    assert select_variant([fast, slow], "energy")[0] is slow
    assert select_variant([fast, slow], "edp")[0] is fast
    assert select_variant([fast, point(1.2, 6.0, "slow")], "edp")[0].name == "slow"


def test_what_cannot_be_deployed_or_was_throttled_is_not_taken() -> None:
    untuned = point(0.5, 1.0, "untuned", deployable=False)
    hot = point(0.6, 1.0, "hot", throttled=True)
    assert select_variant([untuned, hot, point(1.0, 10.0)], "latency")[0].name == "fastest"
    # Where nothing else is left, a throttled figure is better than none.
    assert select_variant([hot], "latency")[0].name == "hot"
    with pytest.raises(MeasureError, match="no variant of the model"):
        select_variant([untuned], "latency")


def test_energy_that_is_not_known_is_no_reason_to_fall_back() -> None:
    with pytest.raises(MeasureError, match="--objective energy: no variant has an energy figure"):
        select_variant([point(1.0, None)], "energy")


def test_a_variant_without_energy_leaves_the_others() -> None:
    blind, seen = point(0.5, None, "blind"), point(1.0, 5.0, "seen")
    assert select_variant([blind, seen], "energy")[0].name == "seen"
    assert (blind.why_no_energy, seen.why_no_energy) == ("no sensor", "")


def test_the_cap_excludes_and_names_the_closest() -> None:
    # 10 mJ in 1 ms are 10 W, 12 mJ in 2 ms are 6 W.
    fast, slow = point(1.0, 10.0, "fast"), point(2.0, 12.0, "slow")
    assert select_variant([fast, slow], "latency", 8.0)[0] is slow
    assert select_variant([fast, slow], "latency", 10.5)[0] is fast
    with pytest.raises(
        MeasureError, match=r"the closest is slow, 1 thread with 6\.00 W at the board"
    ) as error:
        select_variant([fast, slow], "latency", 5.0)
    assert "\n" not in str(error.value)
    with pytest.raises(MeasureError, match=r"--power-cap 5: power is unavailable \(no sensor\)"):
        select_variant([point(1.0, None)], "latency", 5.0)


def test_the_deployed_one_is_of_the_mode_that_the_board_goes_back_to() -> None:
    points = [point(1.0, 10.0, mode="home"), point(3.0, 4.0, mode="low")]
    result = select_variants(points, "energy", None, "home")
    assert result.taken is points[0]
    assert [one.mode for one in result.front.front] == ["home", "low"]
    assert result.advice == "power mode low would save 60% of the energy (fastest, 1 thread, low)"
    with pytest.raises(MeasureError, match="the closest is fastest, 1 thread, home with 10"):
        select_variants(points, "energy", 5.0, "home")


def test_before_and_after_are_of_one_run() -> None:
    result = select_variants(
        [point(1.0, 10.0), point(1.5, 12.0, "untuned", deployable=False)], "latency", None, ""
    )
    assert result.gain is not None and result.gain.value == pytest.approx(1.5)
    assert result.gain.low == pytest.approx(1.5) == result.gain.high
    assert result.energy_gain is not None and result.energy_gain.value == pytest.approx(1.2)
    assert ratio_between(point(1.0, None), point(1.0, 1.0), "energy") is None


def test_the_bounds_are_those_of_the_windows() -> None:
    one = point(1.0, 10.0, noise=0.1)
    gross = one.gross_j
    assert gross is not None and gross.low is not None and gross.high is not None
    assert gross.low < 0.0099 < gross.high and gross.n == 3
    assert one.net_j is not None and one.net_j.value == pytest.approx(gross.value / 2)
    assert one.mean_w == pytest.approx(10.0)


def test_a_plan_is_taken_only_where_it_is_shown_to_be_better() -> None:
    stood = point(1.0, 10.0, "stood")
    close = point(0.999, 10.0, "plan", noise=0.05, instead_of="stood")
    assert select_variant([stood, close], "latency") == (
        stood,
        "stood, 1 thread stays: no other form takes less time beyond noise",
    )
    faster = point(0.9, 10.0, "plan", instead_of="stood")
    assert select_variant([stood, faster], "latency")[0] is faster
    # What it stands instead of cannot be measured: then it is a variant like others.
    assert select_variant([close], "latency")[0] is close


def test_a_plan_is_not_taken_where_what_it_stands_instead_of_was_slowed_down() -> None:
    stood = point(1.0, 10.0, "stood", throttled=True)
    faster = point(0.9, 10.0, "plan", instead_of="stood")
    assert select_variant([stood, faster], "latency")[0] is stood
    other = point(2.0, 10.0, "other")
    assert select_variant([stood, faster, other], "latency")[0] is other


def test_a_plan_may_be_taken_where_the_cap_excludes_what_it_stands_instead_of() -> None:
    stood = point(1.0, 10.0, "stood")
    frugal = point(2.0, 8.0, "plan", instead_of="stood")
    assert select_variant([stood, frugal], "latency")[0] is stood
    assert select_variant([stood, frugal], "latency", cap_w=5.0)[0] is frugal
