"""Fields of what comes from elsewhere: what passes, and how the rest is named."""

from __future__ import annotations

import math

import pytest

from device_agent.contract.fields import Fields, is_number


def fields_of(**values):
    return Fields(values, ValueError)


def test_what_is_as_it_has_to_be_is_returned():
    fields = fields_of(t="é", w=5, n=0.5, b=True, l=[1], o={"a": 1}, ts=["x"], ns=[1, 2.5], os=[{"k": "v"}])
    assert (fields.text("t"), fields.whole("w", 5, 5), fields.number("n"), fields.number("w")) == (
        "é",
        5,
        0.5,
        5.0,
    )
    assert (
        fields.truth("b") is True and fields.items("l", 1) == [1] and fields.object("o").whole("a", 0, 1) == 1
    )
    assert fields.texts("ts") == ["x"] and fields.numbers("ns") == [1.0, 2.5]
    assert [one.text("k") for one in fields.objects("os")] == ["v"]
    assert fields.number_map("o") == {"a": 1.0} and fields_of(m={"a": "b"}).text_map("m") == {"a": "b"}


def test_a_standard_is_for_what_is_absent_or_null_only():
    fields = fields_of(null=None, empty="")
    for name in ("null", "absent"):
        assert fields.text(name, standard="s") == "s" and fields.whole(name, 0, 1, 7) == 7
        assert fields.number(name, standard=0.5) == 0.5 and fields.truth(name, False) is False
        assert not fields.has(name)
        with pytest.raises(ValueError, match=name):
            fields.text(name)
    assert fields.text("empty", standard="s") == ""


@pytest.mark.parametrize("value", [True, "5", 5.0, None, [], {}, -1, 11])
def test_what_is_no_whole_number_of_the_range_is_refused(value):
    with pytest.raises(ValueError, match=r"^n is .*; a whole number from 0 to 10 is expected$"):
        fields_of(n=value).whole("n", 0, 10)


@pytest.mark.parametrize("value", [True, "5", None, [], math.nan, math.inf, -math.inf, -0.1, 1e8])
def test_what_is_no_number_of_seconds_is_refused(value):
    with pytest.raises(ValueError, match=r"^n is .* is expected$"):
        fields_of(n=value).seconds("n")
    assert not is_number(value) or value in (-0.1, 1e8)


@pytest.mark.parametrize("value", [5, None, [], "x" * 11, "a\0b"])
def test_what_is_no_text_is_refused(value):
    with pytest.raises(ValueError, match="text of at most 10 characters"):
        fields_of(t=value).text("t", 10)


def test_inner_objects_are_named_by_their_place():
    with pytest.raises(ValueError, match=r"^os\[1\]: k is missing; text"):
        [one.text("k") for one in fields_of(os=[{"k": "v"}, {}]).objects("os")]
    with pytest.raises(ValueError, match=r"^o: a is 'x'"):
        fields_of(o={"a": "x"}).object("o").whole("a", 0, 1)
    with pytest.raises(ValueError, match="os is a list of 1; a list of objects"):
        list(fields_of(os=[5]).objects("os"))


def test_an_error_is_one_printable_line_whatever_came():
    for name, value in (
        ("a\x1b[31m\n", 5),
        ("a", "\x1b[31m\n\u202e"),
        ("a", "x" * 10**6),
        ("a", [0] * 10**6),
    ):
        with pytest.raises(ValueError) as caught:
            Fields({name: value}, ValueError).whole(name, 0, 1)
        assert str(caught.value).isprintable() and len(str(caught.value)) < 250
