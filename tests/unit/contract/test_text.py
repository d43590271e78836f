"""Text from elsewhere before it is shown."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from device_agent.contract.text import is_printable, printable


@given(st.text(st.characters(exclude_categories=())), st.integers(0, 100))
def test_nothing_hidden_is_left(text, limit):
    shown = printable(text, limit)
    assert len(shown) <= max(limit, 3)
    assert shown == "" or shown.isprintable()
    assert not any(unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"} for character in shown)
    shown.encode("utf-8")


def test_what_becomes_visible():
    assert printable("\x1b]0;PWN\x07") == "\\x1b]0;PWN\\x07"
    assert printable("a\u202eb\ud800") == "a\\u202eb\\ud800"
    assert printable("two\nlines\tand  spaces") == "two lines and spaces"
    assert printable("naïve 模型") == "naïve 模型"
    assert printable("x" * 500, 10) == "xxxxxxx..."
    assert printable(ValueError("reason")) == "reason"


def test_is_printable():
    assert is_printable("conv_1 (3x3)")
    assert not is_printable("a\x1b[31m")
    assert not is_printable("a\nb")
