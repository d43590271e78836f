"""Tasks and records of which it is known what a board prefers: many vectors and few rows."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from host.model import Candidate, Energy, Measurement
from host.records import Record, RecordOrigin
from host.schedules.families import rule_versions
from host.tlm.language.vocabulary import Vocabulary, spell_decisions
from host.tlm.model.card import Size
from host.tlm.model.network import new_model, save_model
from host.tlm.training.example import Example
from host.tlm.training.replay import REPLAY, write_replay

VOCABULARY = Vocabulary()
SIZE = Size(layers=1, heads=1, width=32, positions=64)
CHOICES = tuple(2**n for n in range(5))


def untrained(folder: Path, size: Size) -> Path:
    """A folder with a network of random weights, and sentences to repeat."""
    save_model(new_model(VOCABULARY, size, 0), folder, VOCABULARY, size, "", {})
    write_replay(folder / REPLAY, [example_of(3, number, 0) for number in range(4)], 4, 0, VOCABULARY)
    return folder


def prompt(board: int, number: int) -> tuple[str, ...]:
    """The words of a task on a board."""
    return ("<board>", "cpu", f"q{board}", "<task>", "rule:tiled", f"q{number}", "<decide>")


def tokens_of(
    vectors: int, rows: int, first: str = "vectors", vocabulary: Vocabulary = VOCABULARY
) -> tuple[int, ...]:
    """The tokens of a program; `first` is the name of its first decision."""
    return tuple(vocabulary.encode(spell_decisions([(first, vectors), ("rows", rows)])))


def seconds_of(vectors: int, rows: int) -> float:
    """What the board prefers: many vectors and few rows."""
    return (2.0 + rows) / (1.0 + vectors)


def example_of(
    board: int,
    number: int,
    seed: int,
    right: bool = True,
    first: str = "vectors",
    vocabulary: Vocabulary = VOCABULARY,
) -> Example:
    """Twelve programs of a task with what the board makes of them, or with times that are shuffled."""
    generator = random.Random(f"{seed}/{board}/{number}")
    programs = generator.sample([(v, r) for v in CHOICES for r in CHOICES], 12)
    times = [seconds_of(*program) for program in programs]
    if not right:
        generator.shuffle(times)
    best = min(times)
    ranked = sorted(zip(times, programs, strict=True))
    return Example(
        number,
        tuple(VOCABULARY.encode(prompt(board, number))),
        tuple((tokens_of(*program, first, vocabulary), round(time / best, 4)) for time, program in ranked),
    )


def measured(count: int, right: bool = True) -> list[Example]:
    """Tasks of one board that the base has never seen."""
    return [example_of(9, number, 1, right) for number in range(count)]


def record_of(
    values: dict[str, int], seconds: float, sentence: Sequence[str] | None, **changes: object
) -> Record:
    """A measured program of a task that its sentence says, or of which nothing says anything."""
    candidate = Candidate("task", "tiled", tuple(values.items()), "tlm", math.nan, rule_versions()["tiled"])
    measurement = Measurement((seconds,), Energy("unavailable", None, None, ""), {}, {}, 1)
    origin = RecordOrigin(sentence=None if sentence is None else tuple(sentence))
    record = Record(candidate, {"board": "b", "threads": 1}, measurement, origin=origin)
    return replace(record, **changes)  # type: ignore[arg-type]
