"""The chat templates of folders of transformers, which may be anyone's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from device_agent.contract.language.chat_templates import ChatTemplates, parse_chat
from host.errors import ModelFileError
from host.importers.decoders.chat import read_chat
from host.importers.decoders.folder import read_folder
from tests.unit.importers.decoders.models import llama, write

TOKENS = {"bos_token": {"__type": "AddedToken", "content": "<s>"}, "eos_token": "</s>", "pad_token": None}


def config(folder: Path, **fields: Any) -> None:
    # As transformers writes lengths that mean "none".
    values = {"model_max_length": int(1e30), "add_bos_token": True, **TOKENS, **fields}
    (folder / "tokenizer_config.json").write_text(json.dumps(values))


def found(folder: Path) -> ChatTemplates:
    content, _ = read_chat(folder)
    assert content is not None
    return parse_chat(content)


def test_a_template_is_a_text_or_one_of_several(tmp_path: Path) -> None:
    assert read_chat(tmp_path) == (None, ())
    config(tmp_path)
    assert read_chat(tmp_path) == (None, ())
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    config(tmp_path, chat_template="{{ bos_token }}")
    assert found(tmp_path) == ChatTemplates({"default": "{{ bos_token }}"}, tokens)
    named = [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]
    config(tmp_path, chat_template=named)
    assert found(tmp_path) == ChatTemplates({"default": "a", "tool_use": "b"}, tokens)
    (tmp_path / "special_tokens_map.json").write_text('{"bos_token": "x", "unk_token": "<unk>"}')
    assert found(tmp_path).special_tokens == {**tokens, "unk_token": "<unk>"}


def test_a_file_of_its_own_counts_before_the_configuration(tmp_path: Path) -> None:
    config(tmp_path, chat_template="old")
    (tmp_path / "chat_template.jinja").write_text("{{ '\u00e4' }}\n")
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "rag.jinja").write_text("rag")
    assert found(tmp_path).templates == {"default": "{{ '\u00e4' }}\n", "rag": "rag"}
    _, files = read_chat(tmp_path)
    assert {path.name for path in files} == {"tokenizer_config.json", "chat_template.jinja", "rag.jinja"}
    (tmp_path / "tokenizer_config.json").unlink()
    assert found(tmp_path).special_tokens == {}


def test_files_of_templates_take_the_place_of_all_in_the_configuration(tmp_path: Path) -> None:
    config(tmp_path, chat_template=[{"name": "default", "template": "a"}, {"name": "tools", "template": "b"}])
    others = tmp_path / "additional_chat_templates"
    others.mkdir()
    assert found(tmp_path).templates == {"default": "a", "tools": "b"}
    (others / "rag.jinja").write_text("rag")
    (others / "folder.jinja").mkdir()
    # transformers has no usual one then.
    assert found(tmp_path).templates == {"default": "a", "rag": "rag"}
    (tmp_path / "chat_template.jinja").write_text("own")
    assert found(tmp_path).templates == {"default": "own", "rag": "rag"}
    (others / "default.jinja").write_text("other")
    assert found(tmp_path).templates == {"default": "other", "rag": "rag"}


def test_a_folder_has_its_templates(tmp_path: Path) -> None:
    write(tmp_path, llama(), {"a": np.ones((2, 3), np.float32)})
    assert read_folder(tmp_path).chat is None
    config(tmp_path, chat_template="{{ bos_token }}")
    folder = read_folder(tmp_path)
    assert folder.chat == read_chat(tmp_path)[0] and folder.chat is not None
    # A model with another template is another model.
    assert tmp_path / "tokenizer_config.json" in folder.files()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", "not valid JSON"),
        (b"[" * 100000, "not valid JSON"),
        (b"[]", "not a JSON object"),
        (b'{"chat_template": 3}', "neither a text nor a list of named ones"),
        (b'{"chat_template": ["a"]}', "neither a text nor a list of named ones"),
        (b'{"chat_template": [{"name": "a"}]}', "is no text"),
        (b'{"chat_template": [{"name": "../a\\u001b", "template": ""}]}', "is not of A-Z"),
        (b'{"chat_template": "\\ud800"}', "no text of whole characters"),
        (b'{"chat_template": "a", "bos_token": "' + b"x" * 2000 + b'"}', "no short text"),
        (b'{"chat_template": "' + b"x" * (1 << 20) + b'"}', "more than 524288 bytes"),
        (b'{"a": "' + b"x" * (1 << 24) + b'"}', "more than 16777216 bytes"),
        (b"\xff", "not valid JSON"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_damaged_configuration_is_refused_in_one_line(content: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_bytes(content)
    with pytest.raises(ModelFileError, match=reason) as refusal:
        read_chat(tmp_path)
    assert "\n" not in str(refusal.value) and "\x1b" not in str(refusal.value)


def test_a_file_that_is_no_template_is_refused(tmp_path: Path) -> None:
    template = tmp_path / "chat_template.jinja"
    for content, reason in ((b"\xff", "no text in UTF-8"), (b"x" * (1 << 21), "more than 1048576 bytes")):
        template.write_bytes(content)
        with pytest.raises(ModelFileError, match=reason):
            read_chat(tmp_path)
    template.unlink()
    (tmp_path / "additional_chat_templates").mkdir()
    for number in range(40):
        (tmp_path / "additional_chat_templates" / f"t{number}.jinja").write_text("")
    with pytest.raises(ModelFileError, match="it has 40 chat templates, not 1 to 32"):
        read_chat(tmp_path)
