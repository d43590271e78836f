from __future__ import annotations

import math
import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from host.tuning.scheduler import TaskState, allocate_trials, expected_gain, expected_saving, score

times = st.lists(st.floats(1e-6, 1.0) | st.just(math.inf), max_size=40).map(tuple)
states = st.lists(
    st.builds(
        TaskState,
        key=st.sampled_from("abcdefgh"),
        weight=st.integers(1, 50).map(float),
        times_s=times,
        pending=st.integers(0, 5),
        estimate_s=st.floats(1e-6, 1.0),
    ),
    max_size=8,
    unique_by=lambda state: state.key,
)


@given(times, st.integers(0, 20))
def test_an_expected_gain_is_a_share_and_falls_with_trials_under_way(
    history: tuple[float, ...], further: int
) -> None:
    gain = expected_gain(history, further)
    assert 0.0 < gain <= 1.0
    assert expected_gain(history, further + 1) <= gain


@settings(deadline=None)
@given(states, st.integers(0, 64))
def test_all_trials_are_given_and_none_to_what_is_given_up(some: list[TaskState], count: int) -> None:
    given_out = allocate_trials(some, count)
    usable = [state for state in some if not state.abandoned]
    assert sum(given_out.values()) == (count if usable else 0)
    assert all(number > 0 for number in given_out.values())
    assert set(given_out) <= {state.key for state in usable}
    assert allocate_trials(list(reversed(some)), count) == given_out, "the order of the tasks does not matter"


def test_unmeasured_tasks_come_first_the_heavy_ones_before_the_others() -> None:
    some = [
        TaskState("light", 1, estimate_s=1e-3),
        TaskState("heavy", 8, estimate_s=1e-3),
        TaskState("known", 1000, (1.0, 0.5)),
    ]
    assert allocate_trials(some, 2) == {"heavy": 2}
    assert allocate_trials(some, 3) == {"heavy": 2, "light": 1}
    assert allocate_trials(some, 10) == {"heavy": 2, "light": 2, "known": 6}
    pending = [replace(some[1], pending=2), some[0]]
    assert allocate_trials(pending, 2) == {"light": 2}


def test_what_improves_and_weighs_gets_more() -> None:
    improving = TaskState("improving", 1, (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3))
    stalled = TaskState("stalled", 1, (0.3,) * 8)
    assert score(improving) > 3 * score(stalled)
    assert score(replace(stalled, weight=4.0)) == 4 * score(stalled)
    given_out = allocate_trials([improving, stalled], 12)
    assert given_out["improving"] > given_out.get("stalled", 0)


def test_a_task_whose_programs_all_fail_is_given_up() -> None:
    failing = TaskState("failing", 100, (math.inf,) * 8)
    assert failing.abandoned
    assert not replace(failing, times_s=(math.inf,) * 7).abandoned
    assert allocate_trials([failing, TaskState("a", 1, (1.0,) * 4)], 3) == {"a": 3}
    assert allocate_trials([failing], 3) == {}


def test_the_worth_of_a_batch_falls_as_nothing_improves() -> None:
    def stalled(trials: int) -> list[TaskState]:
        return [TaskState(name, 1, (1.0,) * trials) for name in "abcd"]

    values = [expected_saving(stalled(n), allocate_trials(stalled(n), 16)) for n in (4, 16, 64, 256)]
    assert values == sorted(values, reverse=True)
    assert values[-1] < 0.002 < values[1]
    assert expected_saving([TaskState("new", 1)], {"new": 1}) == 1.0
    assert expected_saving([], {}) == 0.0


def test_simulated_tasks_come_closer_to_their_optimum_than_with_equal_shares() -> None:
    """Twelve tasks with a known optimum of one second: three weigh most and have a long way to go."""

    def play(scheduled: bool, seed: int) -> float:
        generator = random.Random(seed)
        spread = {f"t{number}": (4.0 if number < 3 else 0.1) for number in range(12)}
        weights = {key: (10.0 if spread[key] > 1 else 1.0) for key in spread}
        tried: dict[str, list[float]] = {key: [] for key in spread}
        for _ in range(15):
            some = [TaskState(key, weights[key], tuple(tried[key])) for key in spread]
            shares = allocate_trials(some, 12) if scheduled else dict.fromkeys(spread, 1)
            for key, number in shares.items():
                # Squared, so that good programs are rare.
                tried[key] += [1.0 + spread[key] * generator.random() ** 0.5 for _ in range(number)]
        return sum(weights[key] * (min(tried[key]) - 1.0) for key in spread)

    scheduled = sum(play(True, seed) for seed in range(20))
    equal = sum(play(False, seed) for seed in range(20))
    assert scheduled < 0.75 * equal
