"""The chat templates of a GGUF file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from device_agent.contract.language.chat_templates import DEFAULT
from host.importers.decoders.chat import chat_file
from host.importers.decoders.config import Config

_TEMPLATE = "tokenizer.chat_template"
# Fields of the file by the name that templates know, each behind "tokenizer.ggml."; the format misspells one.
_TOKENS = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "sep_token": "seperator_token_id",
    "pad_token": "padding_token_id",
    "cls_token": "cls_token_id",
    "mask_token": "mask_token_id",
}


def read_chat(metadata: Config) -> bytes | None:
    """The content of a bundle's file of chat templates; None where the file has none.

    Args:
        metadata: of the file: `tokenizer.chat_template`, and further ones with a name behind it.

    Raises:
        ModelFileError: they are no texts, or longer than any.
    """
    values = metadata.values
    templates = {DEFAULT: values[_TEMPLATE]} if values.get(_TEMPLATE) else {}
    start = f"{_TEMPLATE}."
    templates |= {name.removeprefix(start): values[name] for name in values if name.startswith(start)}
    if not templates:
        return None
    return chat_file(metadata.where, templates, _special_tokens(values))


def _special_tokens(values: Mapping[str, Any]) -> dict[str, str]:
    tokens = values.get("tokenizer.ggml.tokens")
    found: dict[str, str] = {}
    if not isinstance(tokens, list):
        return found
    for name, field in _TOKENS.items():
        number = values.get(f"tokenizer.ggml.{field}")
        if type(number) is not int or not 0 <= number < len(tokens):
            continue
        if isinstance(tokens[number], str):
            found[name] = tokens[number]
    return found
