"""The benchmark of bundles from cold: what it runs, and what it says where the command fails."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.gpu import cold
from benchmarks.result_file import read_result
from host.errors import UserError

# In the place of the interpreter: writes a bundle, or fails, and says which folders it was given.
_COMMAND = """#!/bin/sh
case "$*" in *broken*) echo first; echo the reason; exit 3;; esac
mkdir -p "$6" && printf 12345 > "$6/kernels" && echo "$XDG_CACHE_HOME" > "$6/../given"
"""


@pytest.fixture
def _stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = tmp_path / "python"
    command.write_text(_COMMAND)
    command.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(command))


@pytest.mark.usefixtures("_stand_in")
def test_the_command_has_empty_folders_of_its_own(tmp_path: Path) -> None:
    found = cold.compiled(Path("net.onnx"), ["--target", "jetson_orin_nano"], tmp_path)
    assert found["bundle_bytes"] == 5 and found["peak_bytes"] > 0
    assert found["wall_s"] >= 0 and found["cpu_s"] >= 0
    assert (tmp_path / "given").read_text() == f"{tmp_path}/cache\n"


@pytest.mark.usefixtures("_stand_in")
def test_a_command_that_fails_is_an_error_with_its_last_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="code 3: the reason"):
        cold.compiled(Path("broken.onnx"), [], tmp_path)


def test_a_row_for_each_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    def compiled(model: Path, options: list[str], folder: Path) -> dict[str, float]:
        assert folder.is_dir() and not list(folder.iterdir())
        given.append((model.name, options))
        return {"wall_s": 1.0, "cpu_s": 2.0, "peak_bytes": 3, "bundle_bytes": 4}

    monkeypatch.setattr(cold, "export", lambda model, folder, _: folder / f"{model}.onnx")
    monkeypatch.setattr(cold, "compiled", compiled)
    output = tmp_path / "cold.json"
    assert cold.main(["one", "other", "--dtype", "fp32", "--json", str(output)]) == 0
    options = ["--target", "jetson_orin_nano", "--processor", "gpu", "--dtype", "fp32"]
    assert given == [("one.onnx", options), ("other.onnx", options)]
    figures = read_result(output).figures
    assert [row["model"] for row in figures["rows"]] == ["one", "other"]
    assert figures["target"] == "jetson_orin_nano"
