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

    Args:
        pieces: of the text.
        stops: see `checked_stops`.

    Attributes:
        stopped: whether a stop string came: what is behind its beginning is not given.
    """

    def __init__(self, pieces: TextPieces, stops: Sequence[str]) -> None:
        self.stopped = False
        self._pieces, self._stops = pieces, list(stops)
        # The end of the text so far that a stop string may begin with.
        self._held = ""

    def add(self, token: int) -> str:
        """The text that one more token adds, and that no stop string can begin in any more."""
        return self._given(self._pieces.add(token))

    def rest(self) -> str:
        """The text that is left at the end."""
        if self.stopped:
            return ""
        given = self._given(self._pieces.rest())
        held, self._held = self._held, ""
        return given + held

    def _given(self, piece: str) -> str:
        if not piece or not self._stops:
            return piece
        text = self._held + piece
        places = [(text.find(stop), len(stop)) for stop in self._stops]
        # The one that is whole first, so that it does not matter how the text is divided into pieces.
        ends = [(place + length, place) for place, length in places if place >= 0]
        if ends:
            self.stopped, self._held = True, ""
            return text[: min(ends)[1]]
        begin = min(self._begun(text, stop) for stop in self._stops)
        self._held = text[begin:]
        return text[:begin]

    @staticmethod
    def _begun(text: str, stop: str) -> int:
        """Where a stop string begins that the text may be continued to; its length where there is none."""
        first = max(0, len(text) - len(stop) + 1)
        return next((place for place in range(first, len(text)) if stop.startswith(text[place:])), len(text))
