"""Strict JSON: the cases that RFC 8259 leaves open, and bounds."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.contract import strict_json
from device_agent.contract.limits import LIMITS

_DEEPEST = LIMITS.json.depth
_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(_VALUES, st.booleans())
def test_plain_values_are_read_back(value, ascii_only):
    assert strict_json.parse(json.dumps(value, ensure_ascii=ascii_only).encode(), 1 << 20) == value


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" ",
        b"NaN",
        b"[Infinity]",
        b"-Infinity",
        b"1e999",
        b"9223372036854775808",
        b"-9223372036854775809",
        b"1" * 5000,
        b'{"a": 1, "a": 2}',
        b'"\\ud800"',
        b'{"\\udc00": 1}',
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b'\xef\xbb\xbf{"a": 1}',
        b'"a\nb"',
        b"01",
        b"[1,]",
        b"{} {}",
        b"'a'",
        b"\x00",
        b"[" * (_DEEPEST + 1) + b"]" * (_DEEPEST + 1),
        b"[" * 200_000,
        b'{"a":' * 200_000,
    ],
)
def test_what_is_refused(data):
    with pytest.raises(ValueError, match="is not valid JSON") as caught:
        strict_json.parse(data, 1 << 24)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_bounds_themselves_are_allowed():
    nested = b"[" * _DEEPEST + b"]" * _DEEPEST
    assert strict_json.parse(nested, len(nested)) is not None
    assert strict_json.parse(b"[9223372036854775807, -9223372036854775808]", 64) == [2**63 - 1, -(2**63)]
    with pytest.raises(ValueError, match="at most 4 are read"):
        strict_json.parse(b"12345", 4)


def test_paired_surrogates_are_text():
    assert strict_json.parse(b'"\\ud83d\\ude00"', 64) == "\U0001f600"
