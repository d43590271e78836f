"""`sdk deploy` of GPTQ and AWQ folders, and texts of what it installs."""

from __future__ import annotations

from pathlib import Path

import pytest

import sdk
from sdk.cli.main import main
from tests.unit.importers.decoders.packed.test_folders import WAYS, made


@pytest.mark.parametrize("name", ["gptq", "awq"])
def test_a_packed_folder_is_deployed_and_writes_texts(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = made(tmp_path / "tiny", WAYS[name][0])
    words = f"deploy {folder} --threads 1 --context 64 --bundle {tmp_path / 'bundle'}"
    assert main([*words.split(), "--report", str(tmp_path / "report.html")]) == 0
    said = capsys.readouterr()
    assert "verified  largest relative error" in said.out
    assert ("take 8 bits, no value changed" in said.out + said.err) == (name == "awq")
    with sdk.load_language_model(tmp_path / "bundle") as model:
        assert len(list(model.generate([3, 1, 4], max_tokens=5))) == 5


def test_a_layout_that_is_not_read_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, _ = made(tmp_path / "tiny", WAYS["awq"][0], version="gemv")
    words = f"deploy {folder} --threads 1 --context 64 --bundle {tmp_path / 'bundle'}"
    assert main(words.split()) != 0
    error = capsys.readouterr().err
    assert "version 'gemv' is not supported" in error and "Traceback" not in error
    assert not (tmp_path / "bundle").exists()
