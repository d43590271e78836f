"""The chat templates of a folder of transformers, and the special tokens that they may name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from device_agent.contract.language.chat_templates import DEFAULT, MOST_BYTES, check_chat
from device_agent.contract.manifest import ContractError
from device_agent.contract.text import printable
from host.errors import ModelFileError
from host.language_file import refuse_pointer

# Those that transformers gives to templates.
SPECIAL_TOKENS = tuple(f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
CONFIG, MAP = "tokenizer_config.json", "special_tokens_map.json"
TEMPLATE, OTHERS = "chat_template.jinja", "additional_chat_templates"
_SUFFIX = ".jinja"
# That of a vocabulary with thousands of reserved tokens has some millions.
_CONFIG_BYTES = 1 << 24
# More are refused when they are checked.
_MOST_FILES = 64


def read_chat(folder: Path) -> tuple[bytes | None, tuple[Path, ...]]:
    """The chat templates of a folder.

    Args:
        folder: of transformers. Where there is chat_template.jinja or additional_chat_templates/*.jinja, they
            are all that there are, as transformers has it, and the latter count before the former. Else
            `chat_template` of tokenizer_config.json is a text or a list of named ones; it has the default
            where these files have none.

    Returns:
        The content of a bundle's file of them, None where there are none, and the files that it was made of.

    Raises:
        ModelFileError: a file is damaged, or larger than any.
        OSError: one cannot be read.
    """
    config = _object(folder / CONFIG)
    templates = _named(folder, config.get("chat_template"))
    own = folder / TEMPLATE
    others = sorted((folder / OTHERS).glob(f"*{_SUFFIX}"))[:_MOST_FILES]
    files = [path for path in (own, *others) if path.is_file()]
    if files:
        usual = {DEFAULT: templates[DEFAULT]} if DEFAULT in templates else {}
        named = {path.name.removesuffix(_SUFFIX): _text(path) for path in files if path != own}
        templates = usual | ({DEFAULT: _text(own)} if own in files else {}) | named
    if not templates:
        return None, ()
    tokens = _special_tokens(_object(folder / MAP)) | _special_tokens(config)
    used = [folder / name for name in (CONFIG, MAP) if (folder / name).is_file()]
    return chat_file(str(folder), templates, tokens), (*used, *files)


def chat_file(where: str, templates: Mapping[str, Any], tokens: Mapping[str, Any]) -> bytes:
    """The content of a bundle's file of chat templates.

    Raises:
        ModelFileError: they are none, or longer than any.
    """
    try:
        return check_chat(templates, tokens).content()
    except ContractError as error:
        raise ModelFileError(f"{printable(where)}: {error}: give the model's own files") from error


def _named(folder: Path, value: Any) -> dict[str, Any]:
    """Templates by name of a text, or of a list of named ones."""
    if value is None or value == "":
        return {}
    if isinstance(value, str):
        return {DEFAULT: value}
    entries: list[Any] = value if isinstance(value, list) else [None]
    if not all(isinstance(one, dict) and isinstance(one.get("name"), str) for one in entries):
        raise ModelFileError(
            f"{folder}: {CONFIG}: chat_template is neither a text nor a list of named ones: save the "
            "tokenizer again with save_pretrained"
        )
    return {one["name"]: one.get("template") for one in entries}


def _special_tokens(fields: Mapping[str, Any]) -> dict[str, str]:
    """Their texts; one may be an object with more about it."""
    found = {}
    for name in SPECIAL_TOKENS:
        value = fields.get(name)
        text = value.get("content") if isinstance(value, dict) else value
        if isinstance(text, str):
            found[name] = text
    return found


def _object(path: Path) -> dict[str, Any]:
    """A JSON object; an empty one where there is no file."""
    if not path.is_file():
        return {}
    try:
        # Lengths that mean "none" are numbers of more than 64 bits there, and no number is read.
        value = json.loads(_content(path, _CONFIG_BYTES), parse_int=float)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(
            f"{path.parent}: {path.name} is not valid JSON: {printable(error, 200)}: save the tokenizer "
            "again with save_pretrained"
        ) from error
    if not isinstance(value, dict):
        raise ModelFileError(f"{path}: not a JSON object: save the tokenizer again with save_pretrained")
    return value


def _text(path: Path) -> str:
    try:
        return _content(path, MOST_BYTES).decode()
    except UnicodeDecodeError as error:
        raise ModelFileError(f"{printable(path)}: no text in UTF-8: download it again") from error


def _content(path: Path, most: int) -> bytes:
    with path.open("rb") as stream:
        content = stream.read(most + 1)
    refuse_pointer(path, content)
    if len(content) > most:
        raise ModelFileError(f"{printable(path)} has more than {most} bytes: give the model's own file")
    return content
