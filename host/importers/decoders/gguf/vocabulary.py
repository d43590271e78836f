"""The tokens of a GGUF file's tokenizer: texts, kinds, and those that stand around a text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from host.importers.decoders.config import MAX_VOCABULARY

# Kinds of tokens by their numbers in files.
NORMAL, CONTROL, OWN = 1, 3, 4


class Unknown(Exception):
    """Why there is no tokenizer."""


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The tokens of a file.

    Attributes:
        tokens: the text of each.
        kinds: of each, see `NORMAL`.
        numbers: of tokens by their texts.
    """

    tokens: list[str]
    kinds: list[int]
    numbers: dict[str, int]

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Vocabulary:
        """The tokens of a file's metadata, whatever it holds.

        Raises:
            Unknown: it has none, or some twice.
        """
        tokens = texts_of(values, "tokens")
        numbers = {token: number for number, token in enumerate(tokens)}
        if len(numbers) != len(tokens) or len(tokens) > MAX_VOCABULARY:
            raise Unknown("tokens of the file are there twice")
        kinds = values.get("tokenizer.ggml.token_type")
        if not isinstance(kinds, list) or len(kinds) != len(tokens):
            raise Unknown("the file has no kinds of its tokens")
        return cls(tokens, kinds, numbers)

    def added(self) -> list[dict[str, Any]]:
        """Tokens that are found in text before it is split."""
        common = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
        return [
            {"id": number, "content": token, **common, "special": kind == CONTROL}
            for number, (token, kind) in enumerate(zip(self.tokens, self.kinds, strict=True))
            if kind in (CONTROL, OWN) and token
        ]

    def beginning(self, values: Mapping[str, Any], *, usual: bool) -> dict[str, Any] | None:
        """What puts the first token before a text, where the model has one.

        Args:
            values: the metadata.
            usual: whether texts of models begin with a token whose files do not say it.

        Raises:
            Unknown: there is to be one, and no such token.
        """
        if values.get("tokenizer.ggml.add_bos_token", usual) is not True:
            return None
        number = values.get("tokenizer.ggml.bos_token_id")
        if type(number) is not int or not 0 <= number < len(self.tokens):
            raise Unknown("the file names no token that begins a text")
        token = self.tokens[number]
        text = [{"Sequence": {"id": kind, "type_id": place}} for place, kind in enumerate("AB")]
        first = {"SpecialToken": {"id": token, "type_id": 0}}
        return {
            "type": "TemplateProcessing",
            "single": [first, text[0]],
            "pair": [first, text[0], text[1]],
            "special_tokens": {token: {"id": token, "ids": [number], "tokens": [token]}},
        }


def texts_of(values: Mapping[str, Any], name: str) -> list[str]:
    """A list of texts of the tokenizer.

    Raises:
        Unknown: it is none.
    """
    found = values.get(f"tokenizer.ggml.{name}")
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise Unknown(f"the file has no {name} of a tokenizer")
    return found


def tokenizer_json(
    added: list[dict[str, Any]],
    normalizer: dict[str, Any] | None,
    splitting: dict[str, Any] | None,
    beginning: dict[str, Any] | None,
    decoder: dict[str, Any],
    model: dict[str, Any],
) -> dict[str, Any]:
    """The object of a `tokenizer.json` whose model joins pairs (BPE).

    Args:
        added: tokens that are found in text first.
        normalizer: changes the text between them.
        splitting: takes it apart.
        beginning: puts a token before a text.
        decoder: makes text of tokens.
        model: its fields besides those that no model of a file has.
    """
    without = {"dropout": None, "continuing_subword_prefix": None, "end_of_word_suffix": None}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": normalizer,
        "pre_tokenizer": splitting,
        "post_processor": beginning,
        "decoder": decoder,
        "model": {"type": "BPE", **without, **model},
    }
