"""`--memory-cap`: a bundle states what it takes, and is not made where that is too much."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from host.compile.memory_cap import described, require_fits, require_within
from host.errors import BuildError, UserError
from host.model import MemoryUse
from host.options import CompileOptions
from sdk.cli.forms import parse_bytes
from sdk.cli.main import main
from tests.integration.small_models import convnet

USE = MemoryUse(weights_bytes=8 << 20, activations_bytes=2 << 20, workspace_bytes=1 << 20)


def test_the_peak_is_all_of_it_together() -> None:
    assert USE.peak_bytes == 11 << 20
    assert described(USE) == "11.0 MiB at its peak (weights 8.0 MiB, activations 2.0 MiB, workspaces 1.0 MiB)"
    small = replace(USE, weights_bytes=512)
    assert "weights 0.5 KiB" in described(small), "nothing that is there is 0.0"
    ranged = MemoryUse(8 << 20, 2 << 20, None)
    assert ranged.peak_bytes == 10 << 20
    assert "workspaces" not in described(ranged)


def test_a_cap_is_the_most_that_is_allowed() -> None:
    require_within(USE, 0)
    require_within(USE, 11 << 20)
    with pytest.raises(
        BuildError, match=r"--memory-cap 11.0 MiB: the model takes 11.0 MiB .* use fewer --threads"
    ):
        require_within(USE, (11 << 20) - 1)
    with pytest.raises(BuildError, match="depends on the length"):
        require_within(MemoryUse(1, 1, None), 1 << 30)


def test_a_model_that_the_device_has_no_room_for_is_refused() -> None:
    require_fits(USE, "pi", 0)
    require_fits(USE, "pi", 11 << 20)
    with pytest.raises(BuildError, match=r"takes 11.0 MiB .*, pi has 10.0 MiB: use --quantize int4"):
        require_fits(USE, "pi", 10 << 20)


@pytest.mark.parametrize(
    ("text", "size"), [("", 0), ("64M", 64 << 20), ("1g", 1 << 30), ("1.5K", 1536), ("1000", 1000)]
)
def test_sizes_as_they_are_typed(text: str, size: int) -> None:
    assert parse_bytes(text, "--memory-cap") == size


@pytest.mark.parametrize("text", ["much", "-1M", "0", "64MB", "1e9", "M"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="give bytes above 0, as in --memory-cap 64M or 1G"):
        parse_bytes(text, "--memory-cap")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (CompileOptions(memory_cap_bytes=1, backend="onnxruntime"), "what onnxruntime takes is not known"),
        (CompileOptions(memory_cap_bytes=1, shapes={"x": ((1, 8),)}), "does not go with a range of lengths"),
    ],
)
def test_what_cannot_be_capped_is_refused_before_any_work(options: CompileOptions, words: str) -> None:
    with pytest.raises(UserError, match=words):
        options.check()


@pytest.mark.usefixtures("own_files")
def test_a_bundle_states_its_memory_and_keeps_to_the_cap(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(convnet(tmp_path / "net.onnx"))
    command = ["compile", model, "--target", "raspberry_pi_5", "--threads", "4"]
    assert main([*command, "-o", str(tmp_path / "free")]) == 0
    manifest = json.loads((tmp_path / "free" / "manifest.json").read_text())
    memory = manifest["memory"]
    assert memory["weights_bytes"] == sum(entry["nbytes"] for entry in manifest["parameters"]) > 0
    assert memory["activations_bytes"] > 0
    peak = memory["weights_bytes"] + memory["activations_bytes"] + memory["workspace_bytes"]
    assert memory["peak_bytes"] == peak

    assert main([*command, "-o", str(tmp_path / "fits"), "--memory-cap", str(peak)]) == 0
    capsys.readouterr()
    assert main([*command, "-o", str(tmp_path / "over"), "--memory-cap", str(peak - 1)]) != 0
    printed = capsys.readouterr().err
    assert "--memory-cap" in printed and "the model takes" in printed and "use fewer --threads" in printed
    assert not (tmp_path / "over").exists()


@pytest.mark.usefixtures("own_files", "short_rounds")
def test_no_other_runtime_is_installed_under_a_cap(tmp_path: Path) -> None:
    """What it takes is not known: where the model is over the cap, nothing is deployed."""
    model, figures = str(convnet(tmp_path / "net.onnx")), tmp_path / "figures.json"
    command = [
        "deploy",
        model,
        "--threads",
        "1",
        "--bundle",
        str(tmp_path / "bundle"),
        "--json",
        str(figures),
    ]
    assert main([*command, "--memory-cap", "1K"]) != 0
    assert not figures.exists() and not (tmp_path / "bundle").exists()
    assert main([*command, "--memory-cap", "64M"]) == 0
    written = json.loads(figures.read_text())
    assert written["backend"] == "tvm"
    assert 0 < written["memory"]["peak_bytes"] <= 64 << 20
