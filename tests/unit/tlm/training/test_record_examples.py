"""Measured records become sentences to learn from."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

from host.records import Record, RecordOrigin
from host.tlm.language.sentence import decode, encode_prompt
from host.tlm.language.vocabulary import quality_token
from host.tlm.training.record_examples import examples_of, examples_of_records
from tests.unit.tlm.cases import spaces
from tests.unit.tlm.learning import VOCABULARY, prompt, record_of, tokens_of


def test_records_become_examples_and_what_is_of_no_use_is_counted() -> None:
    sentence = [*prompt(9, 4), quality_token(0)]
    first = record_of({"vectors": 4, "rows": 1}, 2.0, sentence)
    records = [
        first,
        record_of({"vectors": 2, "rows": 1}, 1.0, sentence),
        record_of({"vectors": 4, "rows": 1}, 1.5, sentence),
        record_of({"vectors": 1, "rows": 1}, 1.0, sentence, profile={"board": "c", "threads": 1}),
        record_of({"vectors": 1, "rows": 1}, 1.0, None),
        record_of({"vectors": 1, "rows": 1}, 1.0, ["<task>"]),
        record_of({"vectors": 1, "rows": 1}, 1.0, ["<board>", "no word", "<decide>"]),
        record_of({"vectors": 1, "rows": 1}, 1.0, sentence[:3]),
        record_of({"unheard": 1}, 1.0, sentence),
        record_of({"vectors": 1}, 1.0, [*sentence[:4], *["q1"] * 260, *sentence[4:]]),
        record_of({}, 1.0, sentence),
        replace(first, candidate=replace(first.candidate, space_version=1)),
        Record.failed(first.candidate, first.profile, "does not build", first.origin),
        replace(first, measurement=replace(first.measurement, throttled=True)),
    ]
    skipped: Counter[str] = Counter()
    one, other = examples_of_records(records, VOCABULARY, skipped)
    assert VOCABULARY.decode(one.prompt) == sentence[:-1]
    assert one.programs == ((tokens_of(2, 1), 1.0), (tokens_of(4, 1), 1.5))
    assert one.qualities == (0, 2)
    assert len(other.programs) == 1
    assert skipped == {
        "without a sentence": 1,
        "with a damaged sentence": 2,
        "outside of the language": 2,
        "whose sentence is too long": 1,
        "of a program without decisions": 1,
        "of another version of their rule": 1,
        "that failed": 1,
        "that a throttled device measured": 1,
    }


def test_records_read_with_their_spaces_are_the_sentences_of_the_language() -> None:
    space = next(space for space in spaces("x86", 3) if len(space.decisions) > 2)
    generator = random.Random(0)
    drawn = [space.candidate(space.sample(generator), "random") for _ in range(3)]
    records = [
        replace(record_of({"vectors": 1}, 1.0 + number, None), candidate=candidate)
        for number, candidate in enumerate(drawn)
    ]
    foreign = replace(records[0], candidate=replace(drawn[0], workload_hash="another"))
    skipped: Counter[str] = Counter()
    spaces_at_hand = {space.task.workload_hash: space}
    [example] = examples_of([*records, foreign], spaces_at_hand, VOCABULARY, skipped)
    assert skipped == {"of a task or rule without a design space": 1}
    words = VOCABULARY.decode([*example.prompt, VOCABULARY.number(quality_token(0)), *example.programs[0][0]])
    sentence = decode(words)
    assert sentence.decisions == drawn[0].decisions
    origin = encode_prompt(sentence.board, sentence.task)
    told = [replace(record, origin=RecordOrigin(sentence=tuple(origin))) for record in records]
    assert examples_of_records(told, VOCABULARY) == [example]
