"""A call ends by its deadline, whatever the budget leaves."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest

from host.model import Candidate
from host.tuning.budget import Budget, Deadline, comparison_s, kept_for_comparison_s
from host.tuning.options import TuneOptions
from host.tuning.tasks import TuningTask
from tests.unit.tuning.learning.test_learning_loop import Clocked
from tests.unit.tuning.simulated import Skilled
from tests.unit.tuning.test_loop import run


def options(seconds: float, deadline_s: float, **others: object) -> TuneOptions:
    budget = Budget(seconds=seconds, batch=4)
    return TuneOptions("net/0", budget, concurrent=False, deadline=Deadline(deadline_s), **others)  # type: ignore[arg-type]


def test_a_deadline_is_a_moment() -> None:
    never, now = Deadline.after(0.0, 0.0), time.monotonic()
    assert never == Deadline() and math.isinf(never.left_s) and not never.passed
    assert Deadline.after(60.0, now).end_s == now + 60.0
    assert not Deadline(now + 3600.0).passed
    assert Deadline(now + 3600.0).earlier(3600.0).passed


def test_the_deadline_ends_a_tuning_whose_budget_is_not_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = Clocked(tmp_path, monkeypatch, 1.0)
    result = run(tmp_path, options(3600.0, 10.0), (Skilled("random", 1),), runner)
    assert (result.trials, result.stopped) == (10, "time")
    again = run(tmp_path, options(3600.0, 5.0), (Skilled("random", 1),), Clocked(tmp_path, monkeypatch, 1.0))
    assert again.measured_now == 5, "earlier runs take nothing of this call's time"


def test_no_measurement_begins_that_would_end_behind_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = Clocked(tmp_path, monkeypatch, 3.0)
    assert run(tmp_path, options(3600.0, 10.0), (Skilled("random", 1),), runner).trials == 3
    assert time.monotonic() <= 10.0
    runner = Clocked(tmp_path, monkeypatch, 3.0)
    assert run(tmp_path, options(3600.0, 10.0, job_s=20.0), (Skilled("random", 1),), runner).measured_now == 0


@pytest.mark.parametrize("workers", [1, 3])
def test_nothing_is_built_behind_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    class Slow(Clocked):
        built = 0

        def build(self, task: TuningTask, candidate: Candidate) -> Path:
            self._now += 100.0
            self.built += 1
            return super().build(task, candidate)

    runner = Slow(tmp_path, monkeypatch, 1.0)
    result = run(tmp_path, options(3600.0, 10.0, workers=workers), (Skilled("random", 1),), runner)
    assert (result.trials, result.stopped) == (0, "time")
    assert 1 <= runner.built <= workers


def test_a_comparison_has_a_quarter_of_the_time_or_is_left_out() -> None:
    assert comparison_s(1.0) > comparison_s(0.0) > 0.0
    assert kept_for_comparison_s(15.0, 0.005) == 0.0
    assert kept_for_comparison_s(100.0, 0.005) == comparison_s(0.005) <= 25.0
    assert kept_for_comparison_s(100.0, 1.0) == 0.0
    assert kept_for_comparison_s(math.inf, 1.0) == comparison_s(1.0)
