"""Drift: no false alarm on boards that are noisy or only a little slower, and none is missed that is real."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from host.calibration.bench import PLAN, fast_end
from host.calibration.drift import Change, changes, confirmed, system_changes
from host.calibration.references import ROUNDS, system_of
from host.errors import MeasureError
from host.model.reference_times import ReferenceTimes, reference_times, system_parts
from tests.unit.calibration.samples import MACHINE

TRUE_S = {"fused_12": 4e-6, "integer_chain": 90e-6, "stream": 11e-3}
DIGEST = "0" * 64


def measured(draw: np.random.Generator, spread: float, factor: float = 1.0) -> ReferenceTimes:
    """What `measure_references` gives on a board whose times are lognormal."""
    seconds = {
        name: tuple(
            fast_end((factor * true_s * np.exp(draw.normal(0.0, spread, PLAN["repeat"]))).tolist())
            for _ in range(ROUNDS)
        )
        for name, true_s in TRUE_S.items()
    }
    return ReferenceTimes(DIGEST, {}, seconds)


def drifted(seed: int, spread: float, factor: float) -> tuple[Change, ...]:
    """What a watch finds: a second measurement where the first is suspicious."""
    draw = np.random.default_rng(seed)
    epoch = measured(draw, spread)
    first = changes(epoch, measured(draw, spread, factor))
    if not any(one.drifted for one in first):
        return ()
    return confirmed(first, changes(epoch, measured(draw, spread, factor)))


@pytest.mark.parametrize("spread", [0.004, 0.05, 0.3])
@pytest.mark.parametrize("factor", [1.0, 1.03, 0.97])
def test_there_is_no_false_alarm_on_200_boards_of_each_kind(spread: float, factor: float) -> None:
    alarms = [seed for seed in range(200) if drifted(seed, spread, factor)]
    assert alarms == []


@pytest.mark.parametrize("factor", [1.08, 0.92])
def test_what_is_8_percent_off_is_found_on_200_boards(factor: float) -> None:
    for seed in range(200):
        found = drifted(seed, 0.01, factor)
        assert {one.program for one in found} == TRUE_S.keys()
        assert all((one.ratio.value > 1.0) == (factor > 1.0) for one in found)


def of_program(value: float, low: float | None, high: float | None, name: str = "stream") -> Change:
    from host.statistics import Estimate

    return Change(name, Estimate(value, low, high))


def test_the_whole_interval_has_to_lie_beyond_the_tolerance() -> None:
    assert of_program(1.08, 1.06, 1.10).drifted
    assert of_program(0.90, 0.88, 0.92).drifted
    assert not of_program(1.08, 1.04, 1.12).drifted
    assert not of_program(0.93, 0.91, 0.96).drifted
    assert not of_program(2.0, None, None).drifted


def test_a_drift_that_a_second_measurement_does_not_show_is_none() -> None:
    slower, faster, same = of_program(1.2, 1.1, 1.3), of_program(0.8, 0.7, 0.9), of_program(1.0, 0.9, 1.1)
    assert confirmed((slower,), (slower,)) == (slower,)
    assert confirmed((slower,), (same,)) == ()
    assert confirmed((same,), (slower,)) == ()
    assert confirmed((slower,), (faster,)) == ()
    assert confirmed((of_program(1.2, 1.1, 1.3, "other"),), (slower,)) == ()


def test_the_greatest_change_comes_first_in_words() -> None:
    epoch = ReferenceTimes(DIGEST, {}, {"a": (1.0,) * 4, "b": (1.0,) * 4})
    now = ReferenceTimes(DIGEST, {}, {"a": (1.02,) * 4, "b": (0.9,) * 4})
    assert [str(one) for one in changes(epoch, now)] == ["b takes 10.0% less", "a takes 2.0% longer"]


def test_other_programs_are_not_compared() -> None:
    epoch = measured(np.random.default_rng(0), 0.01)
    other = ReferenceTimes("1" * 64, epoch.system, epoch.seconds)
    fewer = ReferenceTimes(DIGEST, {}, {"stream": epoch.seconds["stream"]})
    for now in (other, fewer):
        with pytest.raises(MeasureError, match="others than in its epoch"):
            changes(epoch, now)


def test_what_a_board_runs_is_named_where_it_changed() -> None:
    epoch = ReferenceTimes(DIGEST, {"kernel": "6.1", "governor": "performance"}, {"a": (1.0,)})
    now = ReferenceTimes(
        DIGEST, {"kernel": "6.6", "governor": "performance", "u-boot": "2025"}, {"a": (1.0,)}
    )
    assert system_changes(epoch, now) == ("kernel 6.1 -> 6.6", "u-boot none -> 2025")


def test_governor_and_clock_are_of_the_state() -> None:
    state = {
        "governors": {"policy0": "schedutil", "policy4": "performance"},
        "limits_hz": {"policy0": [6e8, 1.8e9], "policy4": [6e8, 2.4e9], "policy5": []},
    }
    assert system_of(MACHINE, state) == {
        "governor": "performance, schedutil",
        "highest clock": "1800 MHz, 2400 MHz",
    }
    assert system_of(MACHINE, {}) == {}


def test_what_a_board_says_of_itself_is_bounded_and_fit_to_be_shown() -> None:
    parts = system_parts({f"{number:03} \x1b[31m" + "x" * 500: "y\n" * 500 for number in range(500)})
    assert len(parts) <= 48
    assert all(len(name) <= 60 and len(text) <= 100 for name, text in parts.items())
    times = ReferenceTimes(DIGEST, parts, {"a": (1.0,)})
    assert reference_times(times.to_text(), 16384) == times


GOOD = {"programs": DIGEST, "system": {"kernel": "6.1"}, "seconds": {"stream": [1e-3, 1.1e-3]}}


def test_times_come_back_from_their_text() -> None:
    times = measured(np.random.default_rng(1), 0.1)
    assert reference_times(times.to_text(), 16384) == times
    assert reference_times(json.dumps(GOOD), 16384).seconds == {"stream": (1e-3, 1.1e-3)}


@pytest.mark.parametrize(
    "change",
    [
        {"programs": "no digest"},
        {"programs": None},
        {"system": []},
        {"system": {"kernel": 5}},
        {"system": {"kernel": "\x1b[31m"}},
        {"system": {str(number): "x" for number in range(49)}},
        {"seconds": {}},
        {"seconds": {"stream": []}},
        {"seconds": {"stream": [0.0]}},
        {"seconds": {"stream": [-1.0]}},
        {"seconds": {"stream": [1e9]}},
        {"seconds": {"stream": ["1"]}},
        {"seconds": {"stream": [1e-3] * 65}},
        {"seconds": {"\x1b": [1e-3]}},
        {"seconds": {str(number): [1e-3] for number in range(17)}},
    ],
)
def test_a_text_of_somebody_else_is_looked_at(change: dict[str, object]) -> None:
    with pytest.raises(ValueError) as caught:
        reference_times(json.dumps({**GOOD, **change}), 16384)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("text", ["", "[]", "5", "{", '{"a": NaN}', json.dumps({**GOOD, "x": "y" * 20000})])
def test_a_text_that_is_no_epoch_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=re.compile(".")):
        reference_times(text, 16384)
