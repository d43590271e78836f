"""Models of the Hugging Face hub, downloaded from a server of the tests' own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from host.errors import UserError
from host.model_file.hub import hub_model
from tests.integration import small_models
from tests.integration.importers.test_transformers_folders import folder_of
from tests.servers.hub import COMMIT, HubServer

DOWNLOAD = """
import sys
from host.errors import EdgeError
from host.model_file.hub import download, hub_model
try:
    print(download(hub_model(sys.argv[1]), lambda line: print(line, file=sys.stderr)))
except EdgeError as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""
NOWHERE = "http://127.0.0.1:1"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubServer]:
    folder, _ = folder_of("resnet", tmp_path / "origin")
    (folder / "pytorch_model.bin").write_bytes(b"a pickle")
    (folder / "modeling.py").write_text("raise SystemExit")
    (folder / "onnx").mkdir()
    small_models.convnet(folder / "onnx" / "model.onnx")
    with HubServer(folder, "org/tiny") as server:
        yield server


def environment(tmp_path: Path, url: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
    own = {f"XDG_{name.upper()}_HOME": str(tmp_path / name) for name in ("cache", "data", "config")}
    return {**kept, **own, "HF_ENDPOINT": url, "HF_HOME": str(tmp_path / "hub"), "HF_HUB_ETAG_TIMEOUT": "2"}


def download(text: str, tmp_path: Path, url: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", DOWNLOAD, text]
    return subprocess.run(
        command, env=environment(tmp_path, url), capture_output=True, text=True, check=False
    )


def test_a_folder_comes_without_pickles_and_code_and_is_kept(hub: HubServer, tmp_path: Path) -> None:
    done = download("hf://org/tiny", tmp_path, hub.url)
    assert done.returncode == 0, done.stderr
    folder = Path(done.stdout.strip())
    assert sorted(one.name for one in folder.iterdir()) == ["config.json", "model.safetensors"]
    assert f"hf://org/tiny is commit {COMMIT[:12]}" in done.stderr
    # Without a network, it is what was downloaded before.
    again = download("hf://org/tiny", tmp_path, NOWHERE)
    assert again.stdout == done.stdout
    assert "what was downloaded before is used" in again.stderr


def test_a_file_is_named_by_its_path(hub: HubServer, tmp_path: Path) -> None:
    done = download("hf://org/tiny@main/onnx/model.onnx", tmp_path, hub.url)
    assert done.returncode == 0, done.stderr
    path = Path(done.stdout.strip())
    assert path.is_file() and path.parts[-2:] == ("onnx", "model.onnx")
    missing = download("hf://org/tiny/absent.onnx", tmp_path, hub.url)
    assert missing.stderr.strip() == "ModelFileError: hf://org/tiny/absent.onnx: the model has no such file"


@pytest.mark.parametrize(
    ("text", "reached", "words"),
    [
        ("hf://org/absent", True, "UserError: hf://org/absent: there is no such model, or it is private"),
        ("hf://org/tiny", False, "and was not before: download it where there is a network"),
    ],
)
def test_what_cannot_be_downloaded_is_one_line(
    text: str, reached: bool, words: str, hub: HubServer, tmp_path: Path
) -> None:
    done = download(text, tmp_path, hub.url if reached else NOWHERE)
    assert done.returncode == 1
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_model_with_pickles_alone_is_not_downloaded(hub: HubServer, tmp_path: Path) -> None:
    (tmp_path / "origin" / "resnet" / "model.safetensors").unlink()
    done = download("hf://org/tiny", tmp_path, hub.url)
    assert "it has no config.json with *.safetensors; weights in pickles are not read" in done.stderr
    assert not any(entry.startswith("GET /org/tiny/resolve") for entry in hub.requests)


def test_the_command_line_compiles_it_under_its_own_name(hub: HubServer, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sdk.cli", "compile", "hf://org/tiny", "--threads", "1"]
    command += ["--shape", "pixel_values=1,3,32,32", "-o", str(tmp_path / "bundle")]
    done = subprocess.run(
        command, env=environment(tmp_path, hub.url), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "bundle" / "manifest.json").read_text())["name"] == "tiny"


@pytest.mark.parametrize(
    "text",
    ["hf://", "hf://org", "hf://org/tiny/../x.onnx", "hf://org/tiny/model.bin", "hf://o g/m", "hf://.o/m"],
)
def test_what_names_no_model_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="names no model: write hf://ORG/MODEL"):
        hub_model(text)


def test_paths_are_paths() -> None:
    assert hub_model("model.onnx") is None
    # As a path has it.
    assert hub_model(str(Path("hf://org/tiny@v1"))) == hub_model("hf://org/tiny@v1")
