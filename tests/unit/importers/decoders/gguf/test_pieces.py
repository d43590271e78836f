"""A tokenizer of scored pieces joins the neighbours that make the piece with the highest score."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
from tokenizers import Tokenizer

from host.importers.decoders.config import Config
from host.importers.decoders.gguf import pieces
from host.importers.decoders.gguf.tokenizer import make_tokenizer

NORMAL, UNKNOWN, CONTROL, OWN, BYTE = 1, 2, 3, 4, 6
SPACE = "\u2581"
TEXT = "the cat's hat, the cats and the hatter's other hat that was there before"


def values_of(**changes: Any) -> dict[str, Any]:
    """Metadata of a file with random pieces of a text, scored by chance."""
    draw = random.Random(0)
    marked = (SPACE + TEXT).replace(" ", SPACE)
    found = {marked[begin : begin + size] for size in range(2, 7) for begin in range(len(marked) - size)}
    parts = sorted(set(marked)) + draw.sample(sorted(found), 150)
    entries = [("<unk>", UNKNOWN, 0.0), ("<s>", CONTROL, 0.0), ("</s>", CONTROL, 0.0)]
    entries += [(f"<0x{number:02X}>", BYTE, 0.0) for number in range(256)]
    entries += [("<turn>", CONTROL, 0.0), ("   ", OWN, 0.0)]
    scores = [-float(place) for place in draw.sample(range(1000), len(parts))]
    entries += [(part, NORMAL, score) for part, score in zip(parts, scores, strict=True)]
    tokens, kinds, scores = (list(one) for one in zip(*entries, strict=True))
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.unknown_token_id": 0,
        **{f"tokenizer.ggml.{name}": value for name, value in changes.items()},
    }


def made(values: dict[str, Any]) -> Tokenizer:
    content, reason = make_tokenizer(Config("test", values))
    assert content is not None and not reason, reason
    return Tokenizer.from_str(content.decode())


def joined(values: dict[str, Any], text: str) -> list[int]:
    """The pieces of a text without tokens of its own, pair by pair, the first of equal ones first."""
    tokens = values["tokenizer.ggml.tokens"]
    entries = zip(tokens, values["tokenizer.ggml.token_type"], values["tokenizer.ggml.scores"], strict=True)
    scores = {token: score for token, kind, score in entries if kind == NORMAL}
    parts = list(text.replace(" ", SPACE))
    while True:
        pairs = [(scores.get(a + b), place) for place, (a, b) in enumerate(pairwise(parts))]
        known = [(score, -place) for score, place in pairs if score is not None]
        if not known:
            break
        place = -max(known)[1]
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
    numbers = {token: number for number, token in enumerate(tokens)}
    in_bytes = ([part] if part in scores else [f"<0x{one:02X}>" for one in part.encode()] for part in parts)
    return [numbers[part] for some in in_bytes for part in some]


@pytest.mark.parametrize("prefix", [True, False])
def test_the_highest_score_is_joined_first(prefix: bool) -> None:
    values = values_of(add_space_prefix=prefix)
    tokenizer = made(values)
    draw = random.Random(1)
    words = TEXT.split()
    texts = [" ".join(draw.choices(words, k=12)) for _ in range(40)]
    texts += ["".join(draw.choices(TEXT, k=60)).replace("   ", " ") for _ in range(40)]
    texts += ["a naïve 猫 \t\n hat", "", "zzz"]
    for text in texts:
        wanted = joined(values, (" " if prefix and text else "") + text)
        assert tokenizer.encode(text).ids == [1, *wanted]
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_tokens_of_their_own_are_found_before_the_text_is_split() -> None:
    values = values_of()
    tokens = values["tokenizer.ggml.tokens"]
    found = made(values).encode("the<turn>cat   hat").ids
    places = [found.index(tokens.index(one)) for one in ("<turn>", "   ")]
    parts = (found[1 : places[0]], found[places[0] + 1 : places[1]], found[places[1] + 1 :])
    assert parts == tuple(joined(values, f" {text}") for text in ("the", "cat", "hat"))
    assert made(values).decode(found[1 : places[0] + 1]) == "the"


def test_a_text_begins_as_the_file_says() -> None:
    assert made(values_of()).encode("the").ids[0] == 1
    assert made(values_of(add_bos_token=False)).encode("the").ids == joined(values_of(), " the")


def test_without_bytes_there_is_a_token_for_what_is_not_known() -> None:
    values = values_of()
    kept = [place for place, kind in enumerate(values["tokenizer.ggml.token_type"]) if kind != BYTE]
    for name in ("tokens", "token_type", "scores"):
        values[f"tokenizer.ggml.{name}"] = [values[f"tokenizer.ggml.{name}"][place] for place in kept]
    assert made(values).encode("猫猫").ids[-1] == 0
    content, reason = make_tokenizer(Config("test", {**values, "tokenizer.ggml.unknown_token_id": -1}))
    assert content is None and "neither bytes nor a token" in reason


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"scores": None}, "no scores"),
        ({"scores": [0.0]}, "no scores"),
        ({"tokens": ["a"]}, "no kinds"),
        ({"bos_token_id": 10_000}, "begins a text"),
        ({"bos_token_id": None}, "begins a text"),
    ],
)
def test_there_is_none_where_something_is_missing(changes: dict[str, Any], reason: str) -> None:
    content, found = make_tokenizer(Config("test", values_of(**changes)))
    assert content is None and reason in found


@pytest.mark.parametrize("score", [float("nan"), float("inf"), "1", True])
def test_scores_are_numbers(score: Any) -> None:
    values = values_of()
    values["tokenizer.ggml.scores"][-1] = score
    content, reason = make_tokenizer(Config("test", values))
    assert content is None and "is no number" in reason


def test_a_file_makes_a_bounded_amount_of_work(monkeypatch: pytest.MonkeyPatch) -> None:
    values = values_of()
    values["tokenizer.ggml.tokens"][-1] = "a" * 129
    content, reason = make_tokenizer(Config("test", values))
    assert content is None and "more than 128 characters" in reason
    monkeypatch.setattr(pieces, "_MOST_CHARACTERS", 100)
    content, reason = make_tokenizer(Config("test", values_of()))
    assert content is None and "more than any" in reason
    monkeypatch.undo()
    monkeypatch.setattr(pieces, "_MOST_PAIRS", 50)
    content, reason = make_tokenizer(Config("test", values_of()))
    assert content is None and "more than 50 pairs" in reason
