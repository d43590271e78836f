"""The values of the next decision that continue a legal program.

A value is allowed only if a witness is known: a legal program that begins with the decisions so far and this
value. Any sequence of allowed values therefore ends in a legal program, and nothing is discarded. Conversely,
every legal program can be reached if a witness exists among few candidates: all open decisions at their
smallest value, or one of them at another value. Tiles of one element without unrolling need the fewest
registers and divide every extent, so they are usually a witness. Decisions that may need another value (for
example the tiles that divide the rows of a Winograd convolution) are found once for each space.
"""

from __future__ import annotations

import itertools
import random

from host.errors import ScheduleError
from host.schedules.design import DesignSpace

_WALKS = 6
# A fixed seed: what may be decided depends on the space alone.
_SEED = 0


class Completions:
    """The allowed values of one space, cached by the decisions so far.

    Args:
        space: of the task.

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
        """Values of the next decision that continue a legal program.

        Args:
            decided: values of the first decisions, each of which was allowed in its place.
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
        """Store a legal program as the witness of those of its prefixes that have none, from a length on."""
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
        # A rescue that the walks did not need is looked for last.
        others = (position for position in range(start, len(self._names)) if position not in self._rescuing)
        for position in itertools.chain(self._rescuing, others):
            if position < start:
                continue
            for value in self._choices[position][1:]:
                values = (*plain[:position], value, *plain[position + 1 :])
                if self._legal(values):
                    return values
        return None

    def _find_rescuing(self) -> tuple[int, ...]:
        """Decisions that may need more than their smallest value, found by random walks through the space."""
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
