"""The worked examples of extensions, installed as packages and used by name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest

from host.records import RecordStore
from tests.integration import small_models

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples" / "extensions"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of packages with all examples installed in it, from copies of their sources."""
    folder = tmp_path_factory.mktemp("site")
    sources = tmp_path_factory.mktemp("sources")
    offline = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    install = [sys.executable, "-m", "pip", "install", *offline]
    for example in sorted(EXAMPLES.iterdir()):
        if (example / "pyproject.toml").is_file():
            copy = sources / example.name
            copy.mkdir()
            for file in example.iterdir():
                if file.is_file():
                    (copy / file.name).write_bytes(file.read_bytes())
            install.append(str(copy))
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    subprocess.run([*install, "--target", str(folder)], check=True, capture_output=True, env=environment)
    return folder


def sdk(site: Path, *arguments: str, where: Path) -> subprocess.CompletedProcess[str]:
    """The command line with the packages of a folder; whole models are measured briefly."""
    environment = {**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{ROOT}"}
    environment |= {"XDG_DATA_HOME": str(where / "data"), "XDG_CONFIG_HOME": str(where / "config")}
    command = [sys.executable, "-m", "tests.deployments.short_rounds", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, cwd=where, check=False)


def test_an_installed_engine_is_a_peer(site: Path, tmp_path: Path) -> None:
    model = small_models.encoder(tmp_path / "encoder.onnx", hidden=16)
    figures = tmp_path / "figures.json"
    text = f"deploy {model} --shape seq=8 --threads 1 --peer onnx_reference --json {figures}"
    done = sdk(site, *text.split(), where=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(figures.read_text())
    assert list(result["peers"]) == ["onnx_reference"]
    assert result["ratios"]["onnx_reference"]["value"] > 0


def test_an_installed_transport_reaches_a_device(site: Path, tmp_path: Path) -> None:
    (tmp_path / "bench").mkdir()
    done = sdk(site, "bundles", "--device", f"folder:{tmp_path / 'bench'}", where=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "bench" / "agent.log").is_file()
    missing = sdk(site, "bundles", "--device", f"folder:{tmp_path / 'absent'}", where=tmp_path)
    assert (missing.returncode, len(missing.stderr.strip().splitlines())) == (2, 1)
    assert "there is no folder" in missing.stderr


@pytest.fixture(scope="module")
def kernels(site: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Of a model that was compiled with the examples installed, with the programs of their proposer."""
    folder = tmp_path_factory.mktemp("compiled")
    model = small_models.encoder(folder / "encoder.onnx", hidden=16)
    text = f"compile {model} -o {folder / 'bundle'} --shape seq=8 --threads 1 --proposer best_of_random"
    done = sdk(site, *text.split(), where=folder)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads((folder / "bundle" / "manifest.json").read_text())["kernels"]
    return found


def test_an_installed_proposer_makes_the_first_programs(kernels: list[dict[str, Any]]) -> None:
    assert {kernel["source"] for kernel in kernels} <= {"best_of_random", "default"}
    assert any(kernel["source"] == "best_of_random" for kernel in kernels)


def test_an_installed_rule_schedules_what_it_matches(kernels: list[dict[str, Any]]) -> None:
    rules = {kernel["rule"] for kernel in kernels}
    assert "unrolled" in rules and "injective" not in rules


def test_an_installed_operator_replaces_the_operations_that_it_is_made_of(site: Path, tmp_path: Path) -> None:
    nodes = [onnx.helper.make_node("Tanh", ["x"], ["t"]), onnx.helper.make_node("Mul", ["x", "t"], ["y"])]
    shapes = [small_models.floats("x", 64, 48)], [small_models.floats("y", 64, 48)]
    model = small_models.save(tmp_path / "lisht.onnx", nodes, *shapes, {})
    figures = tmp_path / "figures.json"
    text = f"deploy {model} --threads 1 --peer onnxruntime --json {figures}"
    done = sdk(site, *text.split(), where=tmp_path)
    # Its outputs have been compared with those of ONNX Runtime.
    assert done.returncode == 0, done.stderr
    manifest = Path(json.loads(figures.read_text())["bundle"]) / "manifest.json"
    assert [kernel["name"] for kernel in json.loads(manifest.read_text())["kernels"]] == ["fused_lisht"]


def test_an_installed_proposer_takes_part_in_tuning(site: Path, tmp_path: Path) -> None:
    model = small_models.encoder(tmp_path / "encoder.onnx", hidden=16)
    figures, records = tmp_path / "tuned.json", tmp_path / "records.sqlite"
    text = (
        f"tune {model} --shape seq=8 --threads 1 --trials 12 --no-train --proposer best_of_random"
        f" --records {records} --json {figures}"
    )
    done = sdk(site, *text.split(), where=tmp_path)
    assert done.returncode == 0, done.stderr
    with RecordStore(records) as store:
        assert "best_of_random" in {record.candidate.proposer for record in store}
