from __future__ import annotations

import pytest

from host.errors import UserError
from host.tuning.budget import Budget, parse_budget


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90.0), ("3m", 180.0), ("1h", 3600.0), ("1.5m", 90.0), (" 2m ", 120.0)]
)
def test_times(text: str, seconds: float) -> None:
    assert parse_budget(text) == seconds


@pytest.mark.parametrize("text", ["", "3", "m", "-3m", "3 m", "3d", "0s", "3m2s", "٣m x"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(UserError, match="90s, 3m or 1h"):
        parse_budget(text)


def test_batches_are_an_eighth_within_bounds() -> None:
    assert [Budget(trials=trials).batch_size for trials in (1, 12, 80, 1000)] == [4, 4, 10, 32]
    assert Budget(trials=1000, batch=5).batch_size == 5
    assert Budget(seconds=60.0).batch_size == 16
    assert [Budget(trials, together=True).batch_size for trials in (1, 12, 300, 1000)] == [8, 8, 50, 64]
    assert Budget(seconds=60.0, together=True).batch_size == 32
    assert Budget(trials=300, batch=5, together=True).batch_size == 5


def test_a_negative_number_is_refused() -> None:
    with pytest.raises(UserError, match="--trials -1"):
        Budget(trials=-1).check()
