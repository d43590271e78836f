"""Strings that end a text: what may become one is held back until it is known."""

from __future__ import annotations

from typing import List, Sequence, Union

from device_agent.execute.text.tokenizer import TextPieces

STOP_STRING = "stop string"
_MOST_STOPS, _LONGEST_STOP = 64, 1 << 12


def checked_stops(stop: Union[str, Sequence[str], None]) -> List[str]:
    """The strings, each once.

    Args:
        stop: one, several, or None for none.

    Raises:
        ValueError: one is empty, no text, or they are more or longer than any.
    """
    stops = [stop] if isinstance(stop, str) else list(stop or ())
    if len(stops) > _MOST_STOPS:
        raise ValueError("%d stop strings: give at most %d" % (len(stops), _MOST_STOPS))
    for one in stops:
        if not isinstance(one, str) or not 0 < len(one) <= _LONGEST_STOP:
            raise ValueError("a stop string is empty, no text, or longer than %d characters" % _LONGEST_STOP)
    return list(dict.fromkeys(stops))


class StoppedPieces:
    """The text of tokens that come one after the other, up to the first stop string.

    Special tokens are no part of the text, and of a stop string they may be.

    Args:
        pieces: of the text.
        stops: see `checked_stops`.

    Attributes:
        stopped: whether a stop string came: what is behind its beginning is not given.
    """

    def __init__(self, pieces: TextPieces, stops: Sequence[str]) -> None:
        self.stopped = False
        self._pieces, self._stops = pieces, list(stops)
        # The end of the text so far that a stop string may begin with, and what of it is of special tokens.
        self._held = ""
        self._special: List[bool] = []

    def add(self, token: int) -> str:
        """The text that one more token adds, and that no stop string can begin in any more."""
        piece = self._pieces.add(token)
        return self._given(piece, self._of_a_stop(token) if self._stops else "")

    def rest(self) -> str:
        """The text that is left at the end."""
        if self.stopped:
            return ""
        given = self._given(self._pieces.rest())
        return given if self.stopped else given + self._taken(self._held, len(self._held))

    def _of_a_stop(self, token: int) -> str:
        """The text of a special token that stop strings have; others are nothing between texts."""
        special = self._pieces.special(token)
        return special if any(special in stop for stop in self._stops) else ""

    def _given(self, piece: str, special: str = "") -> str:
        if not (piece or special) or not self._stops:
            return piece
        text = self._held + piece + special
        self._special += [False] * len(piece) + [True] * len(special)
        places = [(text.find(stop), len(stop)) for stop in self._stops]
        # The one that is whole first, so that it does not matter how the text is divided into pieces.
        ends = [(place + length, place) for place, length in places if place >= 0]
        if ends:
            self.stopped = True
            return self._taken(text, min(ends)[1])
        return self._taken(text, min(self._begun(text, stop) for stop in self._stops))

    def _taken(self, text: str, end: int) -> str:
        """The text up to a place without special tokens; what is behind it is held."""
        given = "".join(one for one, special in zip(text[:end], self._special) if not special)
        self._held, self._special = text[end:], self._special[end:]
        return given

    @staticmethod
    def _begun(text: str, stop: str) -> int:
        """Where a stop string begins that the text may be continued to; its length where there is none."""
        first = max(0, len(text) - len(stop) + 1)
        return next((place for place in range(first, len(text)) if stop.startswith(text[place:])), len(text))
