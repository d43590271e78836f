"""The chat templates of a language model, which come from anyone's file: `chat.json` of a bundle.

schema           "edgetlm.chat/1"
templates        {name: text}, in the language of Jinja, as transformers and GGUF files have them
special_tokens   {name: text} of the tokens that templates may name: "bos_token", "eos_token", ...
"""

from __future__ import annotations

import json
import re
from typing import Any, Dict, Mapping, NamedTuple

from device_agent.contract import strict_json
from device_agent.contract.manifest import ContractError
from device_agent.contract.text import printable

CHAT = "chat.json"
DEFAULT = "default"
_SCHEMA = "edgetlm.chat/1"
# The longest templates of today have some tens of thousands of characters.
MOST_BYTES = 1 << 20
_MOST_TEMPLATES, _MOST_TOKENS = 32, 256
_TOKEN_CHARACTERS = 1 << 10
_TEMPLATE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_TOKEN = re.compile(r"[a-z][a-z0-9_]{0,93}_token")


class ChatTemplates(NamedTuple):
    """How a conversation becomes a prompt.

    Attributes:
        templates: text by name; "default" is taken where none is named.
        special_tokens: text of the tokens that templates may name, by name.
    """

    templates: Dict[str, str]
    special_tokens: Dict[str, str]

    def content(self) -> bytes:
        """The file."""
        fields = {
            "schema": _SCHEMA,
            "templates": self.templates,
            "special_tokens": self.special_tokens,
        }
        return json.dumps(fields, indent=1, sort_keys=True).encode()


def check_chat(templates: Mapping[str, Any], special_tokens: Mapping[str, Any]) -> ChatTemplates:
    """Chat templates, if they are any.

    Raises:
        ContractError: a name or a text is none, or they are longer than any.
    """
    if not 0 < len(templates) <= _MOST_TEMPLATES:
        raise ContractError("it has %d chat templates, not 1 to %d" % (len(templates), _MOST_TEMPLATES))
    if len(special_tokens) > _MOST_TOKENS:
        raise ContractError("it has more than %d special tokens" % _MOST_TOKENS)
    for name, text in templates.items():
        shown = printable(repr(name), 60)
        if not (isinstance(name, str) and _TEMPLATE.fullmatch(name)):
            raise ContractError(
                "the name of its chat template %s is not of A-Z, a-z, 0-9, _, . and -" % shown
            )
        if not isinstance(text, str):
            raise ContractError("its chat template %s is no text" % shown)
    for name, text in special_tokens.items():
        named = isinstance(name, str) and _TOKEN.fullmatch(name)
        if not (named and isinstance(text, str) and len(text) <= _TOKEN_CHARACTERS):
            raise ContractError("one of its special tokens has no name, or is no short text")
    checked = ChatTemplates(dict(templates), dict(special_tokens))
    try:
        size = len("".join([*templates.values(), *special_tokens.values()]).encode())
    except UnicodeEncodeError as error:
        raise ContractError("one of its chat templates is no text of whole characters") from error
    # What is no ASCII takes up to six times as many bytes in the file as here.
    if size > MOST_BYTES // 2 or len(checked.content()) > MOST_BYTES:
        raise ContractError("its chat templates have more than %d bytes" % (MOST_BYTES // 2))
    return checked


def parse_chat(data: bytes) -> ChatTemplates:
    """The content of `chat.json`, checked.

    Raises:
        ContractError: it is none, or of another version.
    """
    try:
        fields = strict_json.parse(data, MOST_BYTES, CHAT)
    except ValueError as error:
        raise ContractError(str(error)) from error
    if not isinstance(fields, dict) or fields.get("schema") != _SCHEMA:
        raise ContractError("%s has not the schema %s" % (CHAT, _SCHEMA))
    templates, tokens = fields.get("templates"), fields.get("special_tokens")
    if not isinstance(templates, dict) or not isinstance(tokens, dict):
        raise ContractError("%s has no templates, or no special tokens" % CHAT)
    return check_chat(templates, tokens)
