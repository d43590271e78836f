"""A text up to its first stop string, however it comes in pieces."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from device_agent.execute.text.stops import StoppedPieces, checked_stops


class Given:
    """Pieces of a text by the number of their token, and what is left at its end; "<" begins special ones."""

    def __init__(self, pieces: Sequence[str], left: str = "") -> None:
        self._pieces, self._left = pieces, left

    def add(self, token: int) -> str:
        return "" if self.special(token) else self._pieces[token]

    def special(self, token: int) -> str:
        return self._pieces[token] if self._pieces[token].startswith("<") else ""

    def rest(self) -> str:
        return self._left


def written(pieces: Sequence[str], stops: Iterable[str], left: str = "") -> tuple[list[str], bool]:
    """What is given with each piece, and whether a stop string came."""
    source: Any = Given(pieces, left)
    stopped = StoppedPieces(source, list(stops))
    given = []
    for token in range(len(pieces)):
        given.append(stopped.add(token))
        if stopped.stopped:
            break
    else:
        given.append(stopped.rest())
    return given, stopped.stopped


def up_to(text: str, stops: Iterable[str]) -> tuple[str, bool]:
    """The text before the stop string that is whole first."""
    for end in range(len(text) + 1):
        found = [len(stop) for stop in stops if text[:end].endswith(stop)]
        if found:
            return text[: end - max(found)], True
    return text, False


def divisions(text: str) -> Iterable[list[str]]:
    for cuts in itertools.product((False, True), repeat=len(text) - 1):
        pieces = [text[0]]
        for letter, cut in zip(text[1:], cuts, strict=True):
            if cut:
                pieces.append(letter)
            else:
                pieces[-1] += letter
        yield pieces


@pytest.mark.parametrize(
    "stops", [["ab"], ["aab", "ba"], ["abab"], ["b"], ["abc", "b"], ["zz"], ["aa", "aaa"]]
)
@pytest.mark.parametrize("text", ["aabab", "abaabb", "aaaaa", "cabcab", "bbbbb"])
def test_the_text_ends_before_the_stop_string_that_is_whole_first(text: str, stops: list[str]) -> None:
    for pieces in divisions(text):
        given, stopped = written(pieces, stops)
        assert ("".join(given), stopped) == up_to(text, stops)


def test_only_what_may_become_a_stop_string_is_held_back() -> None:
    assert written(["Hello", " wor", "ld", "!", " E", "N", "X", " "], ["END", "\n\n"]) == (
        ["Hello", " wor", "ld", "!", " ", "", "ENX", " ", ""],
        False,
    )
    assert written(["one\n", "\ntwo"], ["\n\n"]) == (["one", ""], True)
    assert written(["one E", "N"], ["END"]) == (["one ", "", "EN"], False)
    assert written(["one E", "N"], ["END"], "D two") == (["one ", "", ""], True)
    assert written(["one", "END"], []) == (["one", "END", ""], False)


def test_special_tokens_are_no_text_and_end_it_where_a_stop_string_has_them() -> None:
    for stops in (["<end>"], ["zz", "<end>"]):
        assert written(["one", "<end>", "two"], stops) == (["one", ""], True)
    assert written(["one", "<end>", "two"], ["e<end>"]) == (["on", ""], True)
    assert written(["one", "<end>", "two"], ["END"]) == (["one", "", "two", ""], False)
    # Part of a stop string, whose other parts are text or special too.
    assert written(["a", "b\n", "<end>", "<go>"], ["b\n<end><go>"]) == (["a", "", "", ""], True)
    assert written(["a", "<end>", "\nb", "c"], ["<end>\n\n"]) == (["a", "", "\nb", "c", ""], False)
    # Others are nothing between what is around them.
    assert written(["E", "<pad>", "ND", "x"], ["END"]) == (["", "", ""], True)
    assert written(["a<", "<end>"], ["<end>"], left="b") == (["a", "<"], True)


def test_stop_strings_are_checked() -> None:
    assert checked_stops(None) == [] and checked_stops("END") == ["END"]
    assert checked_stops(["b", "a", "b"]) == ["b", "a"]
    for wrong in ("", ["a", ""], [3], ["x" * 5000], [str(number) for number in range(65)]):
        given: Any = wrong
        with pytest.raises(ValueError, match="stop string"):
            checked_stops(given)
