"""What a device answers about variants of a model is used as what it has to be, or refused."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host.errors import EdgeError, MeasureError
from host.measure.variants import variant_measurement_of

REPLY: dict[str, Any] = {
    "variants": [
        {
            "slow": False,
            "kernels": [
                {"name": "dense", "calls": 2, "times_s": [0.5, 0.25]},
                {"name": "softmax", "calls": 1, "times_s": [0.125, 0.0625]},
            ],
        },
        {"slow": True, "kernels": [{"name": "dense", "calls": 2, "times_s": [8.0]}]},
    ],
    "state_before": {"time_s": 1.0},
    "state_after": {"time_s": 2.0},
    "threads": 4,
    "throttled": True,
    "throttle_reasons": ["hot"],
    "invalid": "",
    "conditions": {"retries": 1},
}
LONG = 20


def test_times_are_those_of_one_call():
    measured = variant_measurement_of(REPLY, 2, 2)
    assert measured.variants[0].times_s == {"dense": (0.25, 0.125), "softmax": (0.125, 0.0625)}
    assert [variant.slow for variant in measured.variants] == [False, True]
    state = measured.state
    assert (state.threads, state.throttled, state.throttle_reasons) == (4, True, ("hot",))
    assert state.conditions == {"retries": 1} and state.times_s == ()
    assert state.energy.kind == "unavailable" and not state.trusted


def changed(path: tuple[str | int, ...], value: object) -> dict[str, Any]:
    reply = copy.deepcopy(REPLY)
    inner: Any = reply
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return reply


FIRST = ("variants", 0, "kernels", 0)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("variants",), None, "variants is None; a list"),
        (("variants",), REPLY["variants"][:1], "variants is a list of 1; a list of 2 variants is expected"),
        (("variants",), REPLY["variants"] * 2, "a list of at most 2 entries"),
        (("variants", 0), 5, "variants is a list of 2; a list of objects"),
        (("variants", 0, "slow"), "no", "slow is 'no'; true or false"),
        (("variants", 1, "slow"), None, "slow is None"),
        (("variants", 0, "kernels"), [], "at least one kernel"),
        (("variants", 0, "kernels"), {"dense": 1.0}, "kernels is an object of 1; a list"),
        ((*FIRST, "name"), 7, "name is 7; text"),
        ((*FIRST, "name"), "softmax", "kernel softmax comes twice"),
        ((*FIRST, "name"), "x" * 10**6, "text of at most"),
        ((*FIRST, "calls"), 0, "calls is 0; a whole number from 1"),
        ((*FIRST, "calls"), 1.5, "calls is 1.5"),
        ((*FIRST, "times_s"), [], "one to 2 usable times"),
        ((*FIRST, "times_s"), [0.5], "as many times of each"),
        ((*FIRST, "times_s"), [0.5] * LONG, "a list of at most 2 entries"),
        ((*FIRST, "times_s"), [0.5, 0.0], "usable times"),
        ((*FIRST, "times_s"), [0.5, -0.5], "usable times"),
        ((*FIRST, "times_s"), [0.5, 1e-300], "usable times"),
        ((*FIRST, "times_s"), [0.5, 1e9], "usable times"),
        ((*FIRST, "times_s"), [0.5, float("nan")], "a list of numbers"),
        ((*FIRST, "times_s"), [0.5, float("inf")], "a list of numbers"),
        ((*FIRST, "times_s"), [0.5, True], "a list of numbers"),
        (("variants", 1, "kernels", 0, "times_s"), [8.0, 8.0], "a list of at most 1 entries"),
    ],
)
def test_a_reply_that_is_wrong_is_refused_by_what_is_wrong(path, value, message):
    with pytest.raises(MeasureError) as caught:
        variant_measurement_of(changed(path, value), 2, 2)
    text = str(caught.value)
    assert message in text and text.isprintable() and len(text) < 1000
    assert text.startswith("the variants of the model: the device sent a wrong answer")


@pytest.mark.parametrize("field", ["state_before", "state_after", "threads"])
def test_the_state_is_looked_at_too(field):
    with pytest.raises(EdgeError, match=f"{field} is 'x'"):
        variant_measurement_of(changed((field,), "x"), 2, 2)


def test_names_are_fit_to_be_shown():
    measured = variant_measurement_of(changed((*FIRST, "name"), "\x1b[31mdense\n"), 2, 2)
    assert all(name.isprintable() for name in measured.variants[0].times_s)


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
anything = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["slow", "kernels", "name", "calls", "times_s"]) | st.text(), inner)
    ),
    max_leaves=8,
)
paths = st.sampled_from(
    [
        ("variants",),
        ("variants", 0),
        ("variants", 0, "kernels"),
        FIRST,
        *((*FIRST, name) for name in ("name", "calls", "times_s")),
        ("variants", 1, "slow"),
        ("conditions",),
        ("throttle_reasons",),
    ]
)


@given(paths, anything)
def test_whatever_comes_is_read_or_an_error_of_the_host(path, value):
    try:
        measured = variant_measurement_of(changed(path, value), 2, 2)
    except EdgeError as error:
        assert str(error).isprintable()
        return
    for variant in measured.variants:
        assert variant.times_s
        assert all(seconds > 0 for times in variant.times_s.values() for seconds in times)
