"""The origin of a record: typed, and its text on disk exactly what it was."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host.records import RecordOrigin
from host.records.record import line_of, record_of
from tests.unit.records.samples import record

NAMES = sorted({one.name for one in fields(RecordOrigin)})
FULL: dict[str, Any] = {
    "command": "sdk tune net",
    "seed": 3,
    "versions": {"tvm": "0.1"},
    "model": "net",
    "device": "kitchen",
    "host": "desk",
    "tuning": "net/0/1",
    "batch": 2,
    "elapsed_s": 7.25,
    "task": "dense",
    "sentence": ["<board>", "é"],
    "base": "abc",
    "unit_factor": 1.04,
    "measured_in": "model",
    "epoch": "0123456789abcdef0123456789abcdef",
    "estimate_parts_s": {"total": 1e-3, "compute": 8e-4},
    "pack": {"signer": "anna@desk", "key": "0f", "made_at": "2026-11-24T10:00:00+00:00", "version": "1e"},
}
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=4,
)


def _with_origin(origin: dict[str, Any]) -> str:
    return json.dumps({**json.loads(line_of(record(1.0))), "origin": origin}, sort_keys=True)


def test_what_a_tuning_writes_is_read_by_name() -> None:
    assert set(FULL) == set(NAMES) - {"foreign"}
    origin = record_of(_with_origin(FULL)).origin
    assert origin.foreign == {}
    assert {name: getattr(origin, name) for name in FULL} == {**FULL, "sentence": ("<board>", "é")}


@given(st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=4), values, max_size=6))
def test_a_line_from_elsewhere_is_written_again_as_it_came(origin: dict[str, Any]) -> None:
    line = _with_origin(origin)
    assert line_of(record_of(line)) == line


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seed", True),
        ("seed", "3"),
        ("command", 7),
        ("versions", {"tvm": 1}),
        ("batch", -1),
        ("batch", 1.0),
        ("elapsed_s", "long"),
        ("elapsed_s", -0.5),
        ("elapsed_s", False),
        ("measured_in", "a dream"),
        ("sentence", "words"),
        ("sentence", ["a", 1]),
        ("unit_factor", 0),
        ("pack", "bob"),
        ("pack", {"signer": "bob"}),
        ("pack", {**FULL["pack"], "key": 1}),
        ("task", None),
        ("foreign", {"task": "dense"}),
        ("ticket", "A-17"),
    ],
)
def test_what_this_program_does_not_write_is_kept_and_not_read(name: str, value: object) -> None:
    origin = RecordOrigin.read({**FULL, name: value})
    assert origin.foreign == {name: value}
    assert name == "foreign" or getattr(origin, name, None) is None
    assert origin.data() == {**FULL, name: value}
