"""Folders that are no whole language model, as downloads and other programs leave them: one line each."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from host.errors import EdgeError, ModelFileError
from host.importers.decoders import text
from host.importers.decoders.chat import read_chat
from host.importers.decoders.folder import read_folder
from host.importers.decoders.importer import import_decoder
from host.importers.decoders.text import Spoken, require_tokenizer
from host.model_file import detect_format
from host.sandbox import Worker
from tests.tiny_tokenizer import WORDS, write_tokenizer
from tests.unit.importers.decoders.models import llama, llama_weights, write

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n"
SHARD = "model-00001-of-00002.safetensors"
ADAPTER = {"base_model.model.layers.0.q_proj.lora_A.weight": np.zeros((8, 64), np.float32)}


def shards(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": SHARD}}))
    (folder / SHARD).write_bytes(POINTER)


def adapter(folder: Path) -> None:
    write(folder, llama(), ADAPTER)
    (folder / "model.safetensors").rename(folder / "adapter_model.safetensors")


def beside(name: str) -> Callable[[Path], object]:
    def spoil(folder: Path) -> None:
        write(folder, llama(), {})
        (folder / name).write_bytes(POINTER)

    return spoil


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (
            lambda f: (f / "model.safetensors").write_bytes(POINTER),
            "tensors is a pointer of Git LFS",
        ),
        (shards, f"{SHARD} is a pointer of Git LFS"),
        (lambda f: (f / "config.json").write_bytes(POINTER), "config.json is a pointer of Git LFS"),
        (beside("generation_config.json"), "generation_config.json is a pointer of Git LFS"),
        (beside("tokenizer_config.json"), "tokenizer_config.json is a pointer of Git LFS"),
        (adapter, r"it holds an adapter \(LoRA\) and not the model: merge both"),
        (lambda f: (f / "model.safetensors").symlink_to("/nowhere/x"), "is a link to no file"),
        (lambda f: (f / "model.safetensors").symlink_to("model.safetensors"), "is a link to no file"),
    ],
)
def test_a_folder_that_was_not_fetched_whole(
    spoil: Callable[[Path], object], reason: str, tmp_path: Path
) -> None:
    spoil(write(tmp_path, llama(), None))
    with pytest.raises(ModelFileError, match=reason) as refusal:
        read_folder(tmp_path)
    assert "\n" not in str(refusal.value)


def test_an_adapter_alone_is_told_from_a_model(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelFileError, match="holds an adapter"):
        detect_format(tmp_path)


@pytest.mark.parametrize("name", ["LlamaForSequenceClassification", "LlamaModel", "LlamaForRewardModel"])
def test_a_model_of_something_else_than_texts(name: str, tmp_path: Path) -> None:
    folder = write(tmp_path, llama(architectures=[name], tie_word_embeddings=True), llama_weights())
    with pytest.raises(EdgeError, match=f"{name} gives no next token: give a model"):
        read_folder(folder)
    for other in (["LlamaForCausalLM"], ["GPT2LMHeadModel"], ["\u001b"], [3], "x", None):
        read_folder(write(tmp_path, llama(architectures=other), llama_weights()))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the tokenizer cannot be used"),
        (b"root:x:0:0:\n", "the tokenizer cannot be used"),
        (b'{"model": {"type": "BPE"}}', "the tokenizer cannot be used"),
        (POINTER, "is a pointer of Git LFS"),
        (b" " * ((1 << 27) + 1), "has more than 134217728 bytes"),
    ],
    ids=["empty", "text", "a part", "pointer", "large"],
)
def test_a_tokenizer_that_is_none_is_not_installed(content: bytes, reason: str, tmp_path: Path) -> None:
    write(tmp_path, llama(), llama_weights())
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(ModelFileError, match=reason) as refusal:
        import_decoder(tmp_path, 32, 8)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("prefix", "merge", "reason"),
    [("##", ["a", "b"], "slice index"), ("x", ["a", "\u00e9"], "SIGABRT")],
    ids=["panics", "aborts"],
)
def test_a_tokenizer_that_ends_its_library_is_one_line(
    prefix: str, merge: list[str], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read in a process of its own."""
    monkeypatch.setattr(text, "Worker", Worker)
    write(tmp_path, llama(), llama_weights())
    bytes_pairs = {"vocab": {"a": 0, "b": 1, "\u00e9": 2}, "merges": [merge]}
    model = {"type": "BPE", "continuing_subword_prefix": prefix, **bytes_pairs}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"added_tokens": [], "model": model}))
    with pytest.raises(ModelFileError, match=f"the tokenizer cannot be used: .*{reason}") as refusal:
        require_tokenizer(read_folder(tmp_path))
    assert "\n" not in str(refusal.value)


def test_what_a_tokenizer_knows(tmp_path: Path) -> None:
    write(tmp_path, llama(), llama_weights())
    without = read_folder(tmp_path)
    assert require_tokenizer(without) == Spoken()
    [note] = without.notes
    assert note.startswith("The bundle has no tokenizer, as the folder has no tokenizer.json: add")
    path = write_tokenizer(tmp_path / "tokenizer.json")
    found = read_folder(tmp_path)
    assert require_tokenizer(found).tokens == len(WORDS) and found.notes == ()
    # Numbers with a gap: the greatest counts.
    path.write_text(path.read_text().replace('"end":12', '"end":500').replace('"end": 12', '"end": 500'))
    assert require_tokenizer(found).tokens == 501


def test_a_tokenizer_that_is_a_link_to_no_file_is_not_left_out(tmp_path: Path) -> None:
    write(tmp_path, llama(), llama_weights())
    (tmp_path / "tokenizer.json").symlink_to("/nowhere/x")
    with pytest.raises(ModelFileError, match=r"tokenizer\.json is a link to no file: download it again, or"):
        read_folder(tmp_path)


def test_a_chat_template_without_a_name_is_named(tmp_path: Path) -> None:
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "to\x1bol use.jinja").write_text("")
    with pytest.raises(
        ModelFileError, match=r"the name of its chat template 'to.*ol use' is not of A-Z"
    ) as refusal:
        read_chat(tmp_path)
    assert "\x1b" not in str(refusal.value)
