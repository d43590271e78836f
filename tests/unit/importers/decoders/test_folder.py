"""Folders that are not whole, or hostile: one line each that says what is wrong and what to do."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from host.errors import ModelFileError
from host.importers.decoders.folder import read_folder
from host.model_file import check_file, detect_format
from tests.unit.importers.decoders.models import llama, write

ONE = {"a": np.ones((2, 3), np.float32)}


def refused(path: Path, *words: str) -> None:
    with pytest.raises(ModelFileError) as error:
        read_folder(path)
    text = str(error.value)
    assert "\n" not in text and len(text) < 600
    assert all(word in text for word in words), text


def test_what_a_folder_holds(tmp_path: Path) -> None:
    write(tmp_path, llama(eos_token_id=2), ONE)
    (tmp_path / "tokenizer.json").write_text("{}")
    found = read_folder(tmp_path)
    assert found.weights["a"].shape == (2, 3) and found.weights["a"].read("a").tolist() == [[1, 1, 1]] * 2
    assert found.tokenizer == tmp_path / "tokenizer.json" and found.end_tokens == (2,)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, 6, 5]}))
    assert read_folder(tmp_path).end_tokens == (5, 6)
    assert {path.name for path in read_folder(tmp_path).files()} == {
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "model.safetensors",
    }


def test_weights_of_several_files_may_be_links(tmp_path: Path) -> None:
    folder, store = write(tmp_path / "model", llama(), None), tmp_path / "store"
    store.mkdir()
    for number, name in enumerate("ab"):
        safetensors.numpy.save_file({name: np.full((2,), number, np.float32)}, store / name)
        (folder / f"part-{name}.safetensors").symlink_to(store / name)
    index = {"weight_map": {name: f"part-{name}.safetensors" for name in "ab"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    found = read_folder(folder)
    assert [found.weights[name].read(name)[0] for name in "ab"] == [0, 1] and len(found.weight_files) == 2


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_halves_become_floats(dtype: str, tmp_path: Path) -> None:
    bits = struct.pack("<H", 0x3E00 if dtype == "F16" else 0x3FC0)  # 1.5
    write(tmp_path, llama(), None)
    raw(tmp_path, {"a": {"dtype": dtype, "shape": [1], "data_offsets": [0, 2]}}, bits)
    values = read_folder(tmp_path).weights["a"].read("a")
    assert values.dtype == np.float32 and values.tolist() == [1.5]


def raw(folder: Path, header: Any, data: bytes, length: int | None = None) -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    size = struct.pack("<Q", len(text) if length is None else length)
    (folder / "model.safetensors").write_bytes(size + text + data)


def test_no_folder_no_configuration_no_weights(tmp_path: Path) -> None:
    refused(tmp_path / "none", "no such folder")
    refused(tmp_path, "no config.json", "save_pretrained")
    write(tmp_path, llama(), None)
    refused(tmp_path, "no *.safetensors")
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    refused(tmp_path, "pytorch_model.bin", "safe_serialization=True")
    for name in "ab":
        safetensors.numpy.save_file(ONE, tmp_path / f"{name}.safetensors")
    refused(tmp_path, "2 safetensors files", "index.json")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"[]", "not a JSON object"),
        (b'{"a": 1, "a": 2}', "a key twice"),
        (b'{"a": NaN}', "not valid JSON"),
        (b'{"a": "\x1b[2J"}', "not valid JSON"),
        (b'{"a": "' + b"x" * (1 << 20) + b'"}', "at most"),
    ],
)
def test_a_configuration_that_is_none(text: bytes, words: str, tmp_path: Path) -> None:
    write(tmp_path, llama(), ONE)
    (tmp_path / "config.json").write_bytes(text)
    refused(tmp_path, words, "save_pretrained")


@pytest.mark.parametrize("value", [-1, "x", 1 << 40, [1, True], list(range(100))])
def test_end_tokens_that_are_none(value: Any, tmp_path: Path) -> None:
    refused(write(tmp_path, llama(eos_token_id=value), ONE), "eos_token_id")


@pytest.mark.parametrize(
    "name", ["../a.safetensors", "/etc/a.safetensors", "sub/a.safetensors", "a.bin", "..", "a\\b.safetensors"]
)
def test_an_index_cannot_leave_the_folder(name: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "model", llama(), None)
    safetensors.numpy.save_file(ONE, tmp_path / "a.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    refused(folder, "no safetensors file of the folder")


def test_an_index_of_files_or_weights_that_are_not_there(tmp_path: Path) -> None:
    write(tmp_path, llama(), None)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"b": "part.safetensors"}}))
    refused(tmp_path, "part.safetensors is missing")
    (tmp_path / "part.safetensors").mkdir()
    refused(tmp_path, "part.safetensors is missing")
    (tmp_path / "part.safetensors").rmdir()
    safetensors.numpy.save_file(ONE, tmp_path / "part.safetensors")
    refused(tmp_path, "weight 'b' is not in part.safetensors")
    index.write_text(json.dumps({"weight_map": {"b": 3}}))
    refused(tmp_path, "weight_map")


def entry(**fields: Any) -> dict[str, Any]:
    return {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **fields}}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda folder: raw(folder, entry(), b"\0" * 7),
        lambda folder: raw(folder, entry(data_offsets=[8, 0]), b"\0" * 8),
        lambda folder: raw(folder, entry(data_offsets=[-8, 0]), b"\0" * 8),
        lambda folder: raw(folder, entry(data_offsets=[0]), b"\0" * 8),
        lambda folder: raw(folder, entry(shape=[3]), b"\0" * 8),
        lambda folder: raw(folder, entry(shape=[1 << 60]), b"\0" * 8),
        lambda folder: raw(folder, entry(shape=[True, 2]), b"\0" * 8),
        lambda folder: raw(folder, entry(shape=[1] * 40), b"\0" * 8),
        lambda folder: raw(folder, entry(dtype=3), b"\0" * 8),
        lambda folder: raw(folder, {"a": []}, b"\0" * 8),
        lambda folder: raw(folder, [], b""),
        lambda folder: raw(folder, b"{]", b""),
        lambda folder: raw(folder, entry(), b"\0" * 8, 1 << 50),
        lambda folder: raw(folder, entry(), b"\0" * 8, 1),
        lambda folder: (folder / "model.safetensors").write_bytes(b"\x01"),
    ],
)
def test_damaged_weights(spoil: Callable[[Path], object], tmp_path: Path) -> None:
    write(tmp_path, llama(), None)
    spoil(tmp_path)
    refused(tmp_path, "not a whole safetensors file", "download it again")


@pytest.mark.parametrize(("values", "word"), [(np.ones(3, np.int32), "I32"), (np.array([1, np.nan]), "F64")])
def test_weights_of_another_type(values: np.ndarray, word: str, tmp_path: Path) -> None:
    tensor = read_folder(write(tmp_path, llama(), {"a": values})).weights["a"]
    with pytest.raises(ModelFileError, match=f"has type {word}; F32, F16, BF16 are read"):
        tensor.read("a")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite(value: float, tmp_path: Path) -> None:
    weights = {"a\u202eb": np.array([1, value, 2], np.float32)}
    tensor = read_folder(write(tmp_path, llama(), weights)).weights["a\u202eb"]
    with pytest.raises(ModelFileError, match="holds NaN or infinity") as error:
        tensor.read("a\u202eb")
    assert "\u202e" not in str(error.value)


def test_the_format_of_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"a folder without config.json: .* \*.safetensors"):
        check_file(tmp_path)
    with pytest.raises(ModelFileError, match=r"a folder without config\.json"):
        detect_format(tmp_path)
    write(tmp_path, llama(), None)
    check_file(tmp_path)
    assert detect_format(tmp_path) == "transformers"
    file = tmp_path / "model.onnx"
    file.write_bytes(b"GGUF" + bytes(20))
    assert detect_format(file) == "gguf"
    with pytest.raises(ModelFileError, match="no such file"):
        check_file(tmp_path / "none")
