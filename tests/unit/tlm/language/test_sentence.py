"""Sentences say exactly what they are made of."""

from __future__ import annotations

import itertools
import os
import random
import statistics
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from host.errors import TlmError
from host.schedules import space_for
from host.tlm.language import numbers
from host.tlm.language.description import describe_board, level_of
from host.tlm.language.sentence import decode, encode, sentence_of
from host.tlm.language.vocabulary import LEVELS, QUALITIES, Vocabulary
from host.tlm.training.example import quality_of
from tests.unit.schedules import functions as fn
from tests.unit.tlm.cases import TARGETS, board_of, spaces

# On demand: EDGETLM_SENTENCES=10000 pytest tests/unit/tlm/language/test_sentence.py
SENTENCES = int(os.environ.get("EDGETLM_SENTENCES", "300"))
# Programs of one space; spaces are dearer than programs.
_EACH = 5
VOCABULARY = Vocabulary()


@settings(max_examples=SENTENCES, deadline=None)
@given(st.one_of(st.integers(0, 4096), st.integers(0, (1 << 31) - 1)))
def test_every_number_has_one_spelling(number: int) -> None:
    tokens = numbers.spell(number)
    assert numbers.read(tokens, 0) == (number, len(tokens))
    assert numbers.read((*tokens, "<end>"), 0) == (number, len(tokens))
    assert VOCABULARY.decode(VOCABULARY.encode(tokens)) == list(tokens)


def test_every_size_to_the_longest_row_is_told_apart() -> None:
    assert len({numbers.spell(number) for number in range(1 << 14)}) == 1 << 14
    assert numbers.spell(56) == ("2^3", "7^1")
    assert numbers.spell(197) == ("2^0", "h3", "x5")


@pytest.mark.parametrize(
    "tokens", [(), ("<end>",), ("3^1",), ("2^0", "7^1", "3^1"), ("2^1", "x3"), ("2^0", "h1")]
)
def test_other_spellings_are_refused(tokens: tuple[str, ...]) -> None:
    with pytest.raises(TlmError, match="number"):
        numbers.read(tokens, 0)


@pytest.mark.parametrize("number", [-1, 1 << 31])
def test_numbers_out_of_range_are_refused(number: int) -> None:
    with pytest.raises(TlmError, match="cannot be written"):
        numbers.spell(number)


@pytest.mark.parametrize("target", TARGETS)
def test_programs_of_every_target_are_written_and_read_without_loss(target: str) -> None:
    generator = random.Random(1)
    lengths = []
    for space in itertools.islice(spaces(target, 0), max(1, SENTENCES // _EACH // len(TARGETS))):
        for _ in range(_EACH):
            sentence = sentence_of(
                space, space.sample(generator, attempts=20000), generator.randrange(QUALITIES)
            )
            tokens = VOCABULARY.encode(encode(sentence))
            read = decode(VOCABULARY.decode(tokens))
            assert read == sentence
            values = dict(read.decisions)
            assert space.legal(values)
            assert [decision.name for decision in space.decisions] == list(values)
            lengths.append(len(tokens))
    assert statistics.median(lengths) <= 100
    assert max(lengths) <= 160


def test_what_differs_reads_differently() -> None:
    def text(size: int, stride: int, restrict: str = "", threads: int = 1) -> list[str]:
        board = fn.board(restrict, 4)
        space = space_for(fn.task(fn.convolution(size, 16, 32, 3, stride)), board.hardware, threads)
        return encode(sentence_of(space, space.sample(random.Random(0))))

    prompts = [
        tuple(itertools.takewhile(lambda token: token != "<decide>", tokens))
        for tokens in (text(12, 1), text(24, 2), text(12, 1, "avx2"), text(12, 1, threads=4), text(13, 1))
    ]
    assert len(set(prompts)) == len(prompts)


def test_board_tokens_follow_the_calibrated_figures() -> None:
    hardware = board_of("x86_64-v3").hardware
    slower = replace(hardware, levels=tuple(replace(m, bandwidth_bytes_per_s=1e9) for m in hardware.levels))
    assert describe_board(hardware, 1) != describe_board(slower, 1)
    assert describe_board(replace(hardware, peak_flops=2 * hardware.peak_flops), 1) != describe_board(
        hardware, 1
    )
    assert describe_board(hardware, 1) != describe_board(hardware, 4)
    assert level_of(0.0) == 0
    assert level_of(1024, 256) == 4
    assert level_of(1e30) == LEVELS - 1


def test_qualities_are_in_order() -> None:
    assert [quality_of(slower) for slower in (1.0, 1.05, 1.3, 9.0)] == list(range(QUALITIES))


def test_damaged_sentences_are_named() -> None:
    space = space_for(fn.task(fn.dense(8, 32, 24)), fn.board().hardware, 1)
    tokens = encode(sentence_of(space, space.sample(random.Random(0))))
    for position in range(len(tokens)):
        with pytest.raises(TlmError):
            decode([*tokens[:position], "<pad>", *tokens[position + 1 :]])
        with pytest.raises(TlmError):
            decode(tokens[:position])
    with pytest.raises(TlmError):
        decode([*tokens, "<end>"])
    with pytest.raises(TlmError, match="vocabulary"):
        VOCABULARY.encode(["rule:unheard"])
    with pytest.raises(TlmError, match="outside"):
        VOCABULARY.decode([len(VOCABULARY)])
