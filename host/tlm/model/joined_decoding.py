"""Programs of a space whose parts are decided apart from each other: the model writes each part by itself.

A chain in bands has the decisions of two or three functions. To the model it would be one task of up to
thirty decisions with one anchor; each of its parts is a task as it learned many.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from host.schedules.design import DesignSpace
from host.tlm.language.vocabulary import Vocabulary
from host.tlm.model.decoding import Decoder, GeneratedProgram
from host.tlm.model.gpt2 import LanguageModel

# Draws of a whole program for each one that is wanted; small parts give the same ones again.
_DRAWS = 20


class JoinedDecoder:
    """Writes programs of a space with parts, see `DesignSpace.parts`; otherwise as a `Decoder`.

    Args:
        model: the language model.
        vocabulary: its vocabulary.
        space: the space of the task on the board.

    Raises:
        ScheduleError: a part has no decisions or no legal program.
        TlmError: the language has no token for a property of a part or the board.
    """

    def __init__(self, model: LanguageModel, vocabulary: Vocabulary, space: DesignSpace) -> None:
        self._decoders = [Decoder(model, vocabulary, part) for part in space.parts]
        self._lengths = [len(part.decisions) for part in space.parts]
        # What belongs to no part, as how many threads share the whole; the parts say nothing about it.
        self._others = [decision.choices for decision in space.decisions[sum(self._lengths) :]]
        # Of what was drawn of each part, the log-probability by its values.
        self._known: list[dict[tuple[int, ...], float]] = [{} for _ in self._decoders]

    def draw(
        self, count: int, seed: int, temperature: float = 1.0, near: tuple[int, ...] | None = None
    ) -> list[GeneratedProgram]:
        """Different programs, the first of the likeliest parts; see `Decoder.draw`.

        Args:
            count: of programs; fewer where not so many different ones are found.
            seed: of the draws.
            temperature: of the draws.
            near: values of all decisions of a program that was drawn before. Drawn are programs that differ
                from it in one part, as `Decoder.draw` changes a program.
        """
        generator = random.Random(seed)
        if near is not None:
            return self._near(count, seed, temperature, near)
        drawn = [self._written(number, count, seed, temperature) for number in range(len(self._decoders))]
        found: dict[tuple[int, ...], GeneratedProgram] = {}
        for turn in range(_DRAWS * count):
            parts = [own[0] if turn == 0 else _drawn(own, temperature, generator) for own in drawn]
            others = tuple(values[-1] if turn == 0 else generator.choice(values) for values in self._others)
            one = _joined(parts, others)
            found.setdefault(one.values, one)
            if len(found) == count:
                break
        return list(found.values())

    def _near(
        self, count: int, seed: int, temperature: float, near: tuple[int, ...]
    ) -> list[GeneratedProgram]:
        """Programs that differ from one in one part, of each part in turn."""
        own, others = [], near
        for length in self._lengths:
            own.append(others[:length])
            others = others[length:]
        kept = [
            GeneratedProgram(values, known[values]) for values, known in zip(own, self._known, strict=True)
        ]
        lists = [
            [
                _joined([*kept[:number], one, *kept[number + 1 :]], others)
                for one in self._written(number, count, seed, temperature, values)
            ]
            for number, values in enumerate(own)
        ]
        found: dict[tuple[int, ...], GeneratedProgram] = {}
        for place in range(count):
            for written in lists:
                if place < len(written):
                    found.setdefault(written[place].values, written[place])
        return list(found.values())[:count]

    def _written(
        self, number: int, count: int, seed: int, temperature: float, near: tuple[int, ...] | None = None
    ) -> list[GeneratedProgram]:
        """Programs of one part."""
        written = self._decoders[number].draw(count, seed + number, temperature, near)
        self._known[number].update((one.values, one.log_probability) for one in written)
        return written


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
