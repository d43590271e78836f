"""What is drafted, and when drafts are verified."""

from __future__ import annotations

import pytest

from device_agent.execute.text.speculation import Lookup, Pace


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([], []),
        ([1], []),
        ([1, 2, 3], []),
        ([1, 2, 3, 4, 1, 2], [3, 4, 1]),
        # The longest run decides, and of equal ones the last.
        ([1, 2, 3, 4, 9, 2, 3, 5, 1, 2, 3], [4, 9, 2]),
        ([1, 2, 3, 4, 1, 2, 3, 5, 1, 2, 3], [5, 1, 2]),
        # A text that repeats itself goes on.
        ([7, 7, 7], [7, 7, 7]),
        ([1, 2, 1, 2], [1, 2, 1]),
    ],
)
def test_what_followed_before_is_drafted(tokens, expected):
    assert Lookup().draft(tokens, 3) == expected


def test_a_text_is_read_as_it_grows():
    lookup, tokens = Lookup(), [5, 6, 7]
    assert lookup.draft(tokens, 2) == []
    tokens += [8, 5, 6]
    assert lookup.draft(tokens, 2) == [7, 8] == Lookup().draft(tokens, 2)
    tokens += [9]
    assert lookup.draft(tokens, 1) == []
    tokens += [5, 6]
    assert lookup.draft(tokens, 1) == [9]


def test_without_a_time_of_a_step_nothing_is_verified():
    pace = Pace(4)
    assert not pace.worth()
    pace.step(1.0)
    assert pace.worth()


def test_verifying_goes_on_while_it_is_faster():
    pace = Pace(4)
    pace.step(1.0)
    for _ in range(50):
        assert pace.worth()
        pace.verification(1.5, 2)


def test_where_it_is_slower_a_draft_is_tried_now_and_then():
    pace = Pace(4)
    pace.step(1.0)
    tried = []
    for draft in range(2000):
        if pace.worth():
            tried.append(draft)
            pace.verification(2.0, 1)
    # At first until it is known, then rarer and rarer.
    assert tried[:6] == [0, 1, 2, 3, 19, 51] and len(tried) < 20
    for _ in range(300):
        if pace.worth():
            pace.verification(2.0, 4)
    assert all(pace.worth() for _ in range(20))


def test_a_faster_step_stops_it():
    pace = Pace(4)
    pace.step(1.0)
    pace.verification(2.0, 4)
    assert pace.worth()
    for _ in range(20):
        pace.step(0.1)
    assert not pace.worth()
