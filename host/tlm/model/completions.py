"""Which values a decision may still take so that the program becomes a legal one.

A value is allowed only with a witness in hand: a legal program that begins with what is decided and this
value. So whatever is chosen from the allowed values, one after the other, ends in a legal program; nothing
has to be thrown away afterwards. The other direction, that every legal program can be reached, holds where a
witness is found among few: all open decisions at their smallest value, or one of them at another. Tiles of
one element and no unrolling ask the least of registers and divide everything, so that this is where one is;
which decisions may need another value (of a Winograd convolution the tiles that its rows divide) is found out
once per space.
"""

from __future__ import annotations

import random

from host.errors import ScheduleError
from host.schedules.design import DesignSpace

_WALKS = 6
# A fixed seed: what may be decided depends on the space alone.
_SEED = 0


class Completions:
    """The allowed values of one space, remembered by what was decided before.

    Args:
        space: the space.

    Raises:
        ScheduleError: the space has no decisions, or no legal program was found.
    """

    def __init__(self, space: DesignSpace) -> None:
        if not space.decisions:
            raise ScheduleError(f"{space.task.name} has no decisions; it is left to a default schedule")
        self.space = space
        self._names = tuple(decision.name for decision in space.decisions)
        self._choices = tuple(decision.choices for decision in space.decisions)
        self._smallest = tuple(choices[0] for choices in self._choices)
        self._witnesses: dict[tuple[int, ...], tuple[int, ...] | None] = {}
        self._allowed: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._rescuing = tuple(range(len(self._names)))
        self._rescuing = self._find_rescuing()
        if self._witness(()) is None:
            sampled = space.sample(random.Random(_SEED))
            self._remember(tuple(sampled[name] for name in self._names))

    def allowed(self, decided: tuple[int, ...]) -> tuple[int, ...]:
        """Values of the next decision that a legal program goes on with.

        Args:
            decided: values of the first decisions, each of them allowed where it was taken.
        """
        found = self._allowed.get(decided)
        if found is None:
            choices = self._choices[len(decided)]
            found = tuple(value for value in choices if self._witness((*decided, value)) is not None)
            self._allowed[decided] = found
        return found

    def _legal(self, values: tuple[int, ...]) -> bool:
        return self.space.legal(dict(zip(self._names, values, strict=True)))

    def _witness(self, decided: tuple[int, ...]) -> tuple[int, ...] | None:
        """A legal program that begins with these values, or None if none was found."""
        if decided not in self._witnesses:
            found = self._search(decided)
            if found is None:
                self._witnesses[decided] = None
            else:
                self._remember(found, len(decided))
        return self._witnesses[decided]

    def _remember(self, witness: tuple[int, ...], start: int = 0) -> None:
        """A legal program is the witness of all its beginnings from a length on that have none yet."""
        for length in range(start, len(witness) + 1):
            if self._witnesses.get(witness[:length]) is None:
                self._witnesses[witness[:length]] = witness

    def _search(self, decided: tuple[int, ...]) -> tuple[int, ...] | None:
        start = len(decided)
        plain = (*decided, *self._smallest[start:])
        before = self._witnesses.get(decided[:-1]) if decided else None
        near = (*decided, *before[start:]) if before is not None else plain
        for values in dict.fromkeys((plain, near)):
            if self._legal(values):
                return values
        for position in self._rescuing:
            if position < start:
                continue
            for value in self._choices[position][1:]:
                values = (*plain[:position], value, *plain[position + 1 :])
                if self._legal(values):
                    return values
        return None

    def _find_rescuing(self) -> tuple[int, ...]:
        """Decisions that may need more than their smallest value, found on drawn walks through the space."""
        generator = random.Random(_SEED)
        rescuing: set[int] = set()
        for walk in range(_WALKS):
            decided: tuple[int, ...] = ()
            for length, choices in enumerate(self._choices, start=1):
                possible = []
                for value in choices:
                    plain = (*decided, value, *self._smallest[length:])
                    witness = self._search(plain[:length])
                    if witness is not None:
                        possible.append(value)
                        rescuing.update(i for i, value in enumerate(witness) if value != plain[i])
                # The first walk keeps to small values, which leave the others most room.
                decided = (
                    *decided,
                    generator.choice(possible or choices) if walk else (possible or choices)[0],
                )
        return tuple(sorted(rescuing))
