from __future__ import annotations

import itertools
import math

import pytest

from host.learned_estimate.evidence import shows_gain
from host.tuning.proposers.bandit import expected_shares, win_posteriors
from host.tuning.proposers.trials import Trial, first_program_speed, judge_trials
from tests.unit.tuning.simulated import candidate

# Every program is another one, if nothing else is said.
NUMBERS = itertools.count(1000)


def trial(task: str, proposer: str, seconds: float, group: str = "", number: int | None = None) -> Trial:
    return Trial(candidate(task, next(NUMBERS) if number is None else number, proposer), seconds, group)


def test_a_program_that_is_measured_again_is_judged_once() -> None:
    trials = [
        trial("a", "gensor", 2.0, "0", number=1),
        trial("a", "tlm", 1.0, "0", number=2),
        trial("a", "tlm", 1.2, "1", number=2),
    ]
    assert [verdict.won for verdict in judge_trials(trials)] == [False, True]


def test_being_measured_first_is_no_win() -> None:
    together = [trial("a", "gensor", 2.0, "0"), trial("a", "tlm", 1.0, "0"), trial("a", "gensor", 1.01, "0")]
    assert [verdict.won for verdict in judge_trials(together)] == [False, True, True]
    alone = [trial("a", "gensor", 2.0, "0"), trial("a", "gensor", 1.0, "0")]
    assert judge_trials(alone) == [], "one proposer's first programs of a task are compared with nobody's"


def test_a_win_is_a_new_best_or_within_two_percent_of_it() -> None:
    trials = [
        trial("a", "gensor", 1.0, "0"),
        trial("a", "tlm", 1.019, "1"),
        trial("a", "tlm", 1.03, "2"),
        trial("a", "tlm", 0.5, "3"),
        trial("a", "gensor", 1.0, "4"),
        trial("b", "gensor", math.inf, "4"),
        trial("b", "tlm", math.inf, "4"),
    ]
    assert [verdict.won for verdict in judge_trials(trials)] == [True, False, True, False, False, False]


def test_records_of_unknown_batches_are_compared_with_what_came_before() -> None:
    trials = [trial("a", "gensor", 1.0), trial("a", "tlm", 0.9), trial("a", "gensor", 0.95)]
    assert [verdict.won for verdict in judge_trials(trials)] == [True, False]


def test_shares_follow_the_later_trials() -> None:
    def history(first: str, then: str) -> list[Trial]:
        trials = [trial("a", "other", 1.0, "start")]
        best = 1.0
        for batch in range(120):
            winner = first if batch < 60 else then
            loser = "gensor" if winner == "tlm" else "tlm"
            best *= 0.99
            trials += [trial("a", winner, best, str(batch)), trial("a", loser, 2.0, str(batch))]
        return trials

    names = ("gensor", "tlm")
    assert expected_shares(win_posteriors(history("tlm", "tlm"), names))["tlm"] > 0.99
    assert expected_shares(win_posteriors(history("gensor", "tlm"), names))["tlm"] > 0.6
    assert 0.4 < expected_shares(win_posteriors([], names))["tlm"] < 0.6


def test_who_was_not_asked_for_long_does_not_come_back_as_the_better_one() -> None:
    trials = [trial("a", "other", 1.0, "start"), trial("a", "gensor", 2.0, "start")]
    for batch in range(400):
        seconds = 1.0 if batch % 10 == 0 else 2.0
        trials.append(trial("a", "tlm", seconds, str(batch)))
    shares = expected_shares(win_posteriors(trials, ("gensor", "tlm")))
    assert shares["tlm"] > 0.6, "one win in ten is better than nothing known"


def test_first_programs_are_compared_over_the_tasks_that_both_have() -> None:
    trials = []
    for number, task in enumerate("abcdefg"):
        trials += [trial(task, "gensor", 1.0), trial(task, "tlm", 0.8 + 0.01 * number)]
        # What came later is no first program, and of this task nothing is known but one.
        trials += [trial(task, "gensor", 0.1), trial(f"only {task}", "tlm", 9.0)]
    speed = first_program_speed(trials, "tlm", "gensor")
    assert speed.n == 7 and 1.0 / 0.86 < speed.value < 1.0 / 0.8
    assert shows_gain(speed) and not shows_gain(first_program_speed(trials, "gensor", "tlm"))
    assert not shows_gain(first_program_speed(trials[:20], "tlm", "gensor")), "five tasks are too few"
    assert first_program_speed([], "tlm", "gensor").n == 0
    assert not shows_gain(first_program_speed([], "tlm", "gensor"))


def test_a_gain_that_its_spread_leaves_open_shows_nothing() -> None:
    trials = [trial(task, "gensor", 1.0) for task in "abcdefgh"]
    trials += [trial(task, "tlm", 0.5 if task in "abc" else 1.1) for task in "abcdefgh"]
    speed = first_program_speed(trials, "tlm", "gensor")
    assert speed.value > 1.1 and not shows_gain(speed)


def test_a_first_program_that_fails_is_four_times_as_slow() -> None:
    trials = [trial(task, "gensor", 1.0) for task in "abcdef"]
    trials += [trial(task, "tlm", math.inf) for task in "abcdef"]
    assert first_program_speed(trials, "tlm", "gensor").value == pytest.approx(0.25)
    assert first_program_speed(trials, "gensor", "tlm").value == pytest.approx(4.0)
