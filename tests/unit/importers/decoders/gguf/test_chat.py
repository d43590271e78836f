"""The chat templates of a GGUF file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from device_agent.contract.language.chat_templates import ChatTemplates, parse_chat
from host.errors import ModelFileError
from host.importers.decoders.gguf.model import read_gguf
from tests.gguf_file import stored, write_gguf
from tests.unit.importers.decoders.gguf.test_header import SHAPES, VALUES


def chat_of(path: Path, **fields: Any) -> bytes | None:
    tensors = {name: stored(np.ones(shape)) for name, shape in SHAPES.items()}
    more = {f"tokenizer.{name}": value for name, value in fields.items()}
    return read_gguf(write_gguf(path, VALUES | more, tensors)).chat


def test_templates_and_the_tokens_that_they_name_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    assert chat_of(path) is None and chat_of(path, chat_template="") is None
    tokens = {"bos_token": "<s>", "eos_token": "<s>"}
    content = chat_of(path, chat_template="{{ bos_token }}")
    assert content is not None and parse_chat(content) == ChatTemplates(
        {"default": "{{ bos_token }}"}, tokens
    )
    others = {"chat_template.tool_use": "b", "chat_templates": ["tool_use"], "ggml.unknown_token_id": 0}
    content = chat_of(path, chat_template="a", **others)
    assert content is not None and parse_chat(content) == ChatTemplates(
        {"default": "a", "tool_use": "b"}, {**tokens, "unk_token": "a"}
    )
    # A number that is no token names none.
    content = chat_of(path, chat_template="a", **{"ggml.padding_token_id": 4, "ggml.mask_token_id": "a"})
    assert content is not None and parse_chat(content).special_tokens == tokens


@pytest.mark.parametrize("template", [3, ["a"], "x" * (1 << 20)], ids=["number", "list", "long"])
def test_what_is_no_template_is_refused(template: Any, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="chat template") as refusal:
        chat_of(tmp_path / "tiny.gguf", chat_template=template)
    assert "\n" not in str(refusal.value)
