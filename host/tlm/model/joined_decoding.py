"""Programs of a space whose parts are decided apart from each other: the model writes each part by itself.

A chain in bands has the decisions of two or three functions. To the model it would be one task of up to
thirty decisions with one anchor; each of its parts is a task as it learned many.

The model has learned what the estimate takes for fast. Where a board's times rank, half of what is drawn of
each part is drawn uniformly: on a board on which the model's programs are slow there are others to choose.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

from host.errors import ScheduleError
from host.schedules.design import DesignSpace
from host.tlm.language.vocabulary import Vocabulary
from host.tlm.model.decoding import Decoder, GeneratedProgram
from host.tlm.model.exchanging import exchanged
from host.tlm.model.gpt2 import LanguageModel

# Draws of a whole program for each one that is wanted; small parts give the same ones again.
_DRAWS = 20


class JoinedDecoder:
    """Writes programs of a space with parts, see `DesignSpace.parts`.

    Args:
        model: the language model.
        vocabulary: its vocabulary.
        space: the space of the task on the board.
        mixed: whether half of the parts are drawn uniformly.

    Raises:
        ScheduleError: a part has no decisions or no legal program.
        TlmError: the language has no token for a property of a part or the board.
    """

    def __init__(
        self, model: LanguageModel, vocabulary: Vocabulary, space: DesignSpace, mixed: bool = False
    ) -> None:
        self._mixed = mixed
        self._parts = space.parts
        self._decoders = [Decoder(model, vocabulary, part) for part in space.parts]
        # What belongs to no part, as how many threads share the whole; the parts say nothing about it.
        decided = sum(len(part.decisions) for part in space.parts)
        self._others = [decision.choices for decision in space.decisions[decided:]]
        # What was drawn of each part, by its values.
        self._known: list[dict[tuple[int, ...], GeneratedProgram]] = [{} for _ in self._decoders]

    def draw(self, count: int, seed: int, temperature: float = 1.0) -> list[GeneratedProgram]:
        """Different programs, the first of the likeliest parts; see `Decoder.draw`.

        Args:
            count: of programs; fewer where not so many different ones are found.
            seed: of the draws.
            temperature: of the draws.
        """
        generator = random.Random(seed)
        numbers = range(len(self._decoders))
        written = [self._written(number, count, seed, temperature) for number in numbers]
        drawn = [self._uniform(number, count // 2, seed) for number in numbers] if self._mixed else []
        found: dict[tuple[int, ...], GeneratedProgram] = {}
        for turn in range(_DRAWS * count):
            if turn % 2 and drawn and all(drawn):
                parts = [generator.choice(own) for own in drawn]
            else:
                parts = [own[0] if turn == 0 else _drawn(own, temperature, generator) for own in written]
            others = tuple(values[-1] if turn == 0 else generator.choice(values) for values in self._others)
            one = _joined(parts, others)
            found.setdefault(one.values, one)
            if len(found) == count:
                break
        return list(found.values())

    def exchanged(
        self, values: tuple[int, ...], cost: Callable[[GeneratedProgram], float]
    ) -> list[GeneratedProgram]:
        """Programs with other parts that were drawn in the place of those of one, see `exchanged`.

        Args:
            values: of all decisions of a program that was drawn.
            cost: of a program; the one that costs least comes first.
        """
        begin, rest = [], values
        for part, known in zip(self._parts, self._known, strict=True):
            begin.append(known[rest[: len(part.decisions)]])
            rest = rest[len(part.decisions) :]
        pools = [list(known.values()) for known in self._known]
        wholes = exchanged(begin, pools, lambda parts: cost(_joined(parts, rest)))
        found = {one.values: one for one in (_joined(parts, rest) for parts in wholes)}
        return list(found.values())

    def _written(self, number: int, count: int, seed: int, temperature: float) -> list[GeneratedProgram]:
        """What the model writes of one part; half as many where the others are drawn uniformly."""
        count = -(-count // 2) if self._mixed else count
        written = self._decoders[number].draw(count, seed + number, temperature)
        self._known[number].update((one.values, one) for one in written)
        return written

    def _uniform(self, number: int, count: int, seed: int) -> list[GeneratedProgram]:
        """Uniform draws of one part, which count as likely as the least likely that the model has drawn."""
        part, known = self._parts[number], self._known[number]
        least = min(one.log_probability for one in known.values())
        generator = random.Random(f"{seed}/{number}")
        found = []
        for _ in range(count):
            try:
                own = part.sample(generator)
            except ScheduleError:
                break
            values = tuple(own[decision.name] for decision in part.decisions)
            found.append(known.setdefault(values, GeneratedProgram(values, least)))
        return found


def _drawn(
    written: Sequence[GeneratedProgram], temperature: float, generator: random.Random
) -> GeneratedProgram:
    """One of a part's programs, by their probabilities."""
    most = max(one.log_probability for one in written)
    weights = [math.exp((one.log_probability - most) / temperature) for one in written]
    return generator.choices(written, weights)[0]


def _joined(parts: Sequence[GeneratedProgram], others: tuple[int, ...]) -> GeneratedProgram:
    values = tuple(value for one in parts for value in one.values)
    return GeneratedProgram((*values, *others), sum(one.log_probability for one in parts))
