"""The tokenizer of a GGUF file as a `tokenizer.json`, where its kind is known.

Kinds are scored pieces (`pieces`), and byte-level BPE whose way of splitting a text has a known name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from device_agent.contract.text import printable
from host.importers.decoders.config import Config
from host.importers.decoders.gguf.pieces import tokenizer_of_pieces
from host.importers.decoders.gguf.vocabulary import Unknown, Vocabulary, texts_of, tokenizer_json

_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_REST_WITH_SLASHES = _REST.replace(r"[\r\n]*", r"[\r\n/]*")
_UPPER, _LOWER = (rf"[{kinds}\p{{Lm}}\p{{Lo}}\p{{M}}]" for kinds in (r"\p{Lu}\p{Lt}", r"\p{Ll}"))
# Words that end where a capital follows a small letter; %s is what may follow.
_CASED = rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+%s|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*%s"
_GPT_4 = rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}{{1,3}}|{_REST}"
# How text is split before merges, by `tokenizer.ggml.pre`: an expression, or nothing for that of GPT-2.
_SPLITS = {
    "gpt-2": "",
    "llama-bpe": _GPT_4,
    "dbrx": _GPT_4,
    "smaug-bpe": _GPT_4,
    "qwen2": rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}|{_REST}",
    "smollm": r"\p{N}",
    "gpt-4o": "|".join([_CASED.replace("%s", f"{_CONTRACTIONS}?"), r"\p{N}{1,3}", _REST_WITH_SLASHES]),
    "tekken": "|".join([_CASED.replace("%s", ""), r"\p{N}", _REST_WITH_SLASHES]),
}
# Other names of the same.
_SAME = {"llama3": "llama-bpe", "llama-v3": "llama-bpe", "deepseek-r1-qwen": "qwen2"}
_NORMALISED = ("qwen2",)
# Those that begin a text with a token where the file has no field for it, and that take a word whole where it
# is a token.
_BEGUN = ("llama-bpe", "tekken")


def make_tokenizer(metadata: Config) -> tuple[bytes | None, str]:
    """The content of a tokenizer.json.

    Args:
        metadata: of the file, whatever it holds.

    Returns:
        The content; or None, and why.
    """
    try:
        return json.dumps(_tokenizer(metadata.values)).encode(), ""
    except Unknown as reason:
        return None, str(reason)


def _tokenizer(values: Mapping[str, Any]) -> dict[str, Any]:
    model = values.get("tokenizer.ggml.model")
    if model == "llama":
        return tokenizer_of_pieces(values)
    if model != "gpt2":
        raise Unknown(f"tokenizers of kind {printable(model, 40)!r} are not read from GGUF files")
    named = values.get("tokenizer.ggml.pre")
    split = _SAME.get(named, named) if isinstance(named, str) else ""
    if split not in _SPLITS:
        raise Unknown(f"splitting of text as {printable(named, 40)!r} is not known")
    vocabulary = Vocabulary.of(values)
    return tokenizer_json(
        vocabulary.added(),
        {"type": "NFC"} if split in _NORMALISED else None,
        _splitting(split),
        vocabulary.beginning(values, usual=split in _BEGUN),
        _bytes(False),
        {
            "unk_token": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": split in _BEGUN,
            "vocab": vocabulary.numbers,
            "merges": _merges(values, vocabulary.numbers),
        },
    )


def _merges(values: Mapping[str, Any], numbers: Mapping[str, int]) -> list[list[str]]:
    merges = []
    for text in texts_of(values, "merges"):
        first, space, second = text.partition(" ")
        if not space or not {first, second, first + second} <= numbers.keys():
            raise Unknown("a merge of the file is not of its tokens")
        merges.append([first, second])
    return merges


def _splitting(split: str) -> dict[str, Any]:
    if not _SPLITS[split]:
        return _bytes(True)
    one = {"type": "Split", "pattern": {"Regex": _SPLITS[split]}, "behavior": "Isolated", "invert": False}
    # SmolLM: digits alone, everything between them as GPT-2 does.
    return {"type": "Sequence", "pretokenizers": [one, _bytes(split == "smollm")]}


def _bytes(split: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": split}
