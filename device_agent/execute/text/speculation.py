"""Speculation: what may follow a text, found in the text itself, and whether verifying it pays.

A step reads all weights for one token. Verifying some drafted tokens in one call reads them once for all, and
the text is the same as without: a drafted token is kept only where it is the one that is chosen there.
"""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence, Tuple

# Numbers of last tokens that are looked for, the longest first.
_LENGTHS = (3, 2)
# Weight of a new time, or number of tokens, in the mean of those before it.
_WEIGHT = 0.25
# Drafts that are left out, where they do not pay, before another is tried: at first, and at most.
_WAIT, _LONGEST_WAIT = 16, 256


class Lookup:
    """Finds what followed the last tokens of a text where they stood before (prompt lookup, Saxena 2023).

    One is for one text, whose tokens are only added to.
    """

    def __init__(self) -> None:
        # The place behind each run of tokens, where it stood last; of all that end before the last token.
        self._places: Dict[Tuple[int, ...], int] = {}
        self._known = 0

    def draft(self, tokens: Sequence[int], count: int) -> List[int]:
        """Tokens that may follow; none where the last ones stood nowhere before.

        Args:
            tokens: of the text.
            count: most of them, 1 or more.
        """
        for end in range(self._known, len(tokens)):
            for length in _LENGTHS:
                if length <= end:
                    self._places[tuple(tokens[end - length : end])] = end
        self._known = len(tokens)
        for length in _LENGTHS:
            place = self._places.get(tuple(tokens[-length:])) if length <= len(tokens) else None
            if place is not None:
                # A text that repeats itself goes on with what is drafted.
                found = list(tokens[place : place + count])
                while len(found) < count:
                    found.append(found[len(found) - (len(tokens) - place)])
                return found
        return []


class Pace:
    """Whether verifying drafts is faster than steps here, by the times that both took.

    Args:
        rows: tokens of one call that verifies.
    """

    def __init__(self, rows: int) -> None:
        self._step_s: Optional[float] = None
        self._verification_s: Optional[float] = None
        # Tokens that a call gives: the most, until it is known.
        self._tokens = float(rows)
        self._left_out, self._wait = 0, _WAIT

    def worth(self) -> bool:
        """Whether the next draft is to be verified. Where it does not pay, one is tried now and then."""
        if self._step_s is None:
            return False
        if self._pays():
            return True
        self._left_out += 1
        if self._left_out < self._wait:
            return False
        self._left_out, self._wait = 0, min(2 * self._wait, _LONGEST_WAIT)
        return True

    def step(self, seconds: float) -> None:
        """Says what a step took."""
        self._step_s = _mean(self._step_s, seconds)

    def verification(self, seconds: float, tokens: int) -> None:
        """Says what a call that verifies took, and how many tokens it gave."""
        self._verification_s = _mean(self._verification_s, seconds)
        self._tokens = _mean(self._tokens, float(tokens))
        if self._pays():
            self._wait = _WAIT

    def _pays(self) -> bool:
        if self._verification_s is None or self._step_s is None:
            return True
        return self._tokens * self._step_s > self._verification_s


def _mean(before: Optional[float], value: float) -> float:
    return value if before is None else before + _WEIGHT * (value - before)
