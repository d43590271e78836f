"""The tokenizer of a GGUF file as a `tokenizer.json`, where its kind is a byte-level BPE that is known."""

from __future__ import annotations

import json
from typing import Any

from device_agent.contract.text import printable
from host.importers.decoders.config import MAX_VOCABULARY, Config

_CONTROL, _OWN = 3, 4
_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
# How text is split before merges, by `tokenizer.ggml.pre`: an expression, or nothing for that of GPT-2.
_SPLITS = {
    "gpt-2": "",
    "llama-bpe": rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}{{1,3}}|{_REST}",
    "qwen2": rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}|{_REST}",
    "smollm": r"\p{N}",
}
_NORMALISED = ("qwen2",)
# Those that begin a text with a token where the file has no field for it.
_BEGUN = ("llama-bpe",)


class _Unknown(Exception):
    """Why there is no tokenizer."""


def make_tokenizer(metadata: Config) -> tuple[bytes | None, str]:
    """The content of a tokenizer.json.

    Args:
        metadata: of the file, whatever it holds.

    Returns:
        The content; or None, and why.
    """
    try:
        return json.dumps(_tokenizer(metadata.values)).encode(), ""
    except _Unknown as reason:
        return None, str(reason)


def _tokenizer(values: Any) -> dict[str, Any]:
    model, split = (values.get(f"tokenizer.ggml.{name}") for name in ("model", "pre"))
    if model != "gpt2":
        raise _Unknown(f"tokenizers of kind {printable(model, 40)!r} are not read from GGUF files")
    if split not in _SPLITS:
        raise _Unknown(f"splitting of text as {printable(split, 40)!r} is not known")
    tokens = _texts(values, "tokens")
    numbers = {token: number for number, token in enumerate(tokens)}
    if len(numbers) != len(tokens) or len(tokens) > MAX_VOCABULARY:
        raise _Unknown("tokens of the file are there twice")
    made = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added(values, tokens),
        "normalizer": {"type": "NFC"} if split in _NORMALISED else None,
        "pre_tokenizer": _splitting(split),
        "post_processor": _beginning(values, tokens, split),
        "decoder": _bytes(False),
    }
    made["model"] = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": split == "llama-bpe",
        "vocab": numbers,
        "merges": _merges(values, numbers),
    }
    return made


def _texts(values: Any, name: str) -> list[str]:
    found = values.get(f"tokenizer.ggml.{name}")
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise _Unknown(f"the file has no {name} of a tokenizer")
    return found


def _merges(values: Any, numbers: dict[str, int]) -> list[list[str]]:
    merges = []
    for text in _texts(values, "merges"):
        first, space, second = text.partition(" ")
        if not space or not {first, second, first + second} <= numbers.keys():
            raise _Unknown("a merge of the file is not of its tokens")
        merges.append([first, second])
    return merges


def _added(values: Any, tokens: list[str]) -> list[dict[str, Any]]:
    """Tokens that are found in text before it is split."""
    kinds = values.get("tokenizer.ggml.token_type")
    if not isinstance(kinds, list) or len(kinds) != len(tokens):
        raise _Unknown("the file has no kinds of its tokens")
    common = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return [
        {"id": number, "content": token, **common, "special": kind == _CONTROL}
        for number, (token, kind) in enumerate(zip(tokens, kinds, strict=True))
        if kind in (_CONTROL, _OWN) and token
    ]


def _splitting(split: str) -> dict[str, Any]:
    if not _SPLITS[split]:
        return _bytes(True)
    one = {"type": "Split", "pattern": {"Regex": _SPLITS[split]}, "behavior": "Isolated", "invert": False}
    # SmolLM: digits alone, everything between them as GPT-2 does.
    return {"type": "Sequence", "pretokenizers": [one, _bytes(split == "smollm")]}


def _bytes(split: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": split}


def _beginning(values: Any, tokens: list[str], split: str) -> dict[str, Any] | None:
    """What puts the first token before a text, where the model has one."""
    if values.get("tokenizer.ggml.add_bos_token", split in _BEGUN) is not True:
        return None
    number = values.get("tokenizer.ggml.bos_token_id")
    if type(number) is not int or not 0 <= number < len(tokens):
        raise _Unknown("the file names no token that begins a text")
    token = tokens[number]
    text = [{"Sequence": {"id": kind, "type_id": place}} for place, kind in enumerate("AB")]
    first = {"SpecialToken": {"id": token, "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [first, text[0]],
        "pair": [first, text[0], text[1]],
        "special_tokens": {token: {"id": token, "ids": [number], "tokens": [token]}},
    }
