"""A tokenizer of scored pieces, as SentencePiece trains them for Gemma, LLaMA 1 and 2, Mistral and Phi-3.

A text is taken apart into characters, with a mark in place of spaces. Of all neighbours, those are joined
that make the piece with the highest score, again and again. A character that is no piece becomes the bytes of
its UTF-8. In a `tokenizer.json`, that is a BPE whose merges are all pairs of pieces that make a piece, in the
order of scores, as transformers writes it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from host.importers.decoders.gguf.vocabulary import NORMAL, OWN, Unknown, Vocabulary, tokenizer_json

_SPACE = "\u2581"
_BYTES = 256
# Pieces have some tens of characters, those of 262,144 together less than half of these, and they are made of
# half as many pairs: a file is not to make much work.
_LONGEST, _MOST_CHARACTERS, _MOST_PAIRS = 128, 1 << 22, 1 << 20


def tokenizer_of_pieces(values: Mapping[str, Any]) -> dict[str, Any]:
    """The object of a `tokenizer.json`.

    Args:
        values: metadata of the file, whatever it holds.

    Raises:
        Unknown: why there is none.
    """
    vocabulary = Vocabulary.of(values)
    in_bytes = all(f"<0x{number:02X}>" in vocabulary.numbers for number in range(_BYTES))
    unknown = _unknown(values, vocabulary)
    if not in_bytes and unknown is None:
        raise Unknown("it has neither bytes nor a token for characters that it does not know")
    begins = values.get("tokenizer.ggml.add_space_prefix", True) is True
    as_marks = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    prepend = {"type": "Prepend", "prepend": _SPACE}
    return tokenizer_json(
        vocabulary.added(),
        {"type": "Sequence", "normalizers": [prepend, as_marks]} if begins else as_marks,
        None,
        vocabulary.beginning(values, usual=True),
        _decoder(begins),
        {
            "unk_token": unknown,
            "fuse_unk": True,
            "byte_fallback": in_bytes,
            "ignore_merges": False,
            "vocab": vocabulary.numbers,
            "merges": _merges(vocabulary, _scores(values, vocabulary)),
        },
    )


def _unknown(values: Mapping[str, Any], vocabulary: Vocabulary) -> str | None:
    number = values.get("tokenizer.ggml.unknown_token_id")
    if type(number) is not int or not 0 <= number < len(vocabulary.tokens):
        return None
    return vocabulary.tokens[number]


def _scores(values: Mapping[str, Any], vocabulary: Vocabulary) -> list[float]:
    found = values.get("tokenizer.ggml.scores")
    if not isinstance(found, list) or len(found) != len(vocabulary.tokens):
        raise Unknown("the file has no scores of its tokens")
    if not all(isinstance(one, float) and math.isfinite(one) for one in found):
        raise Unknown("a score of the file is no number")
    return found


def _merges(vocabulary: Vocabulary, scores: list[float]) -> list[list[str]]:
    """All pairs that make a piece: the highest score first, and of one piece the longest beginning."""
    pieces = {
        token: scores[number]
        for number, (token, kind) in enumerate(zip(vocabulary.tokens, vocabulary.kinds, strict=True))
        if kind in (NORMAL, OWN)
    }
    if sum(map(len, pieces)) > _MOST_CHARACTERS or max(map(len, pieces), default=0) > _LONGEST:
        raise Unknown(f"a token of the file has more than {_LONGEST} characters, or all have more than any")
    found = []
    for piece, score in pieces.items():
        for place in range(len(piece) - 1, 0, -1):
            first, second = piece[:place], piece[place:]
            if first in pieces and second in pieces:
                found.append((-score, -place, place - len(piece), first, second))
        if len(found) > _MOST_PAIRS:
            raise Unknown(f"its tokens are made of more than {_MOST_PAIRS} pairs of tokens")
    found.sort(key=lambda one: one[:3])
    return [[first, second] for *_, first, second in found]


def _decoder(begins: bool) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if begins:
        parts.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {"type": "Sequence", "decoders": parts}
