"""`sdk deploy` of GPTQ and AWQ folders and of GGUF files, and texts of what it installs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import sdk
from sdk.cli.main import main
from tests.gguf_file import metadata_of, tensors_of, write_gguf
from tests.unit.importers.decoders.models import save
from tests.unit.importers.decoders.packed.test_folders import WAYS, made


# AWQ has zero points too.
@pytest.mark.parametrize("name", [pytest.param("gptq", marks=pytest.mark.long), "awq"])
def test_a_packed_folder_is_deployed_and_writes_texts(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = made(tmp_path / "tiny", WAYS[name][0])
    words = f"deploy {folder} --threads 1 --context 64 --bundle {tmp_path / 'bundle'}"
    assert main([*words.split(), "--report", str(tmp_path / "report.html")]) == 0
    said = capsys.readouterr()
    assert "verified  largest relative error" in said.out
    assert "8 bits" not in said.out + said.err
    # Of each weight of a product half a byte, for each 32 of them a scale and AWQ's zero point; the
    # embedding, the head, norms and the tables of the rotation are float32.
    weights = 2 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 96 * 64)
    packed = weights // 2 + weights // 32 * (3 if name == "awq" else 2)
    manifest = json.loads((tmp_path / "bundle" / "manifest.json").read_text())
    others = manifest["memory"]["weights_bytes"] - packed
    assert 2 * 128 * 64 * 4 < others < 2 * 128 * 64 * 4 + 12000 < 2 * 128 * 64 * 4 + weights // 2
    with sdk.load_language_model(tmp_path / "bundle") as model:
        assert len(list(model.generate([3, 1, 4], max_tokens=5))) == 5


def test_a_layout_that_is_not_read_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, _ = made(tmp_path / "tiny", WAYS["awq"][0], version="gemv")
    words = f"deploy {folder} --threads 1 --context 64 --bundle {tmp_path / 'bundle'}"
    assert main(words.split()) != 0
    error = capsys.readouterr().err
    assert "version 'gemv' is not supported" in error and "Traceback" not in error
    assert not (tmp_path / "bundle").exists()


def test_a_file_of_superblocks_is_deployed_with_its_bits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = {"hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 1}
    model = save(tmp_path / "folder", "llama", **sizes)
    # As llama.cpp's Q4_K_M has them: values and what goes back to the hidden size have more bits.
    types = {"attn_v": "Q6_K", "ffn_down": "Q6_K", "attn_output": "Q4_K", "output": "Q6_K", "": "Q4_K"}
    path = write_gguf(
        tmp_path / "tiny.gguf", metadata_of("llama", model.config), tensors_of("llama", model, types)
    )
    words = f"deploy {path} --threads 1 --context 64 --bundle {tmp_path / 'bundle'}"
    assert main([*words.split(), "--report", str(tmp_path / "report.html")]) == 0
    said = capsys.readouterr()
    assert "verified  largest relative error" in said.out
    manifest = json.loads((tmp_path / "bundle" / "manifest.json").read_text())
    held = manifest["memory"]["weights_bytes"]
    six = 256 * (128 + 256 + 128) * 8.5625 / 8
    four = 256 * (128 + 256 + 128 + 256 + 2 * 256) * 4.625 / 8
    assert six + four < held < six + four + 40000
    with sdk.load_language_model(tmp_path / "bundle") as loaded:
        assert len(list(loaded.generate([3, 1, 4], max_tokens=5))) == 5
