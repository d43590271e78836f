"""Quantised models from file to device: command line, Python, project file, bundle, emulated board."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sdk
from host import bundle
from host.errors import UserError
from host.options import CompileOptions
from host.progress import Silence
from host.quantisation import parent
from sdk.cli.main import main
from sdk.management.records import tasks_of
from tests.deployments.workers import answer_here
from tests.integration.boards.cli import sdk as typed
from tests.unit.quantisation import models


@pytest.fixture
def quantised_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a worker, which the other tests here have."""
    answer_here(monkeypatch, parent)


def figures(path: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(path).read_text())
    return found


def test_a_network_of_convolutions_is_verified_beside_both_forms_of_its_original_runtime(
    capsys: pytest.CaptureFixture[str],
) -> None:
    models.mobile(Path("net.onnx"))
    models.samples(Path("samples.npz"))
    said = typed(
        capsys,
        "deploy net.onnx --threads 1 --backend tvm --quantize int8 --calibration samples.npz --json a.json",
    )
    assert "quantised 11 of 11 layers to int8, calibrated with 12 samples" in said
    assert "error     scores off by " in said and "the same class in 100.0%" in said
    found = figures("a.json")
    assert found["verify"]["passed"] and found["backend"] == "tvm"
    assert set(found["peers"]) == {"onnxruntime", "onnxruntime-fp32"}
    assert all(peer["latency_ms"]["median"] > 0 for peer in found["peers"].values())
    # The model in floats is as far from the quantised one as quantising measured on the same samples.
    [error] = found["quantisation"]["errors"]
    distance = found["peers"]["onnxruntime-fp32"]["verify"]["max_rel_err"]
    assert 0.2 * error["largest"] < distance < 2 * error["largest"]
    assert any("integer" in task["name"] or task["rule"] == "dot" for task in found["tasks"])
    assert "What quantising loses" in Path("edgetlm-out/net/report.html").read_text()
    images = np.load("samples.npz")["image"]
    made = Path("edgetlm-out/net/bundle")
    golden = bundle.golden_cases(made, bundle.load(made))
    np.testing.assert_array_equal([case.inputs[0] for case in golden], images[[0, 4, 8]])


@pytest.mark.usefixtures("quantised_here")
def test_a_network_of_attention_is_verified_and_keeps_layers_in_floats() -> None:
    models.vision(Path("net.onnx"))
    models.samples(Path("samples.npz"))
    options = {"quantize": "int8", "calibration": "samples.npz", "threads": 1, "rounds": 6, "backend": "tvm"}
    result = sdk.deploy("net.onnx", **options).result
    assert result.verification.passed and result.quantisation is not None
    assert not result.quantisation.kept
    strict = 0.6 * result.quantisation.rms
    again = sdk.deploy("net.onnx", **options, quantize_error=strict).result
    assert again.verification.passed and again.quantisation is not None
    assert again.quantisation.kept and again.quantisation.rms <= strict


@pytest.mark.usefixtures("quantised_here")
def test_a_project_file_names_the_samples_and_a_compilation_takes_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = Path("model")
    (folder / "samples").mkdir(parents=True)
    models.mobile(folder / "net.onnx", blocks=1)
    models.samples(folder / "all.npz")
    for number, image in enumerate(np.load(folder / "all.npz")["image"]):
        np.save(folder / "samples" / f"{number}.npy", image)
    (folder / "edgetlm.toml").write_text(
        'model = "net.onnx"\nquantize = "int8"\ncalibration = "samples"\nquantize-error = 0.5\n'
    )
    (folder / "below").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder / "below")
        said = typed(capsys, "compile --target raspberry_pi_5 -o out")
        manifest = bundle.load(Path("out"))
    assert "edgetlm.toml gives" in said and "calibration" in said
    assert manifest.backend == "tvm" and "--calibration ../samples" in manifest.command
    weights = (folder / "below" / "out").rglob("*")
    assert sum(file.stat().st_size for file in weights if "param" in file.name) < 12000


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--quantize int8", "an ONNX model needs samples of its inputs: give --calibration"),
        ("--quantize int4 --calibration samples.npz", "goes only with a language model"),
        ("--calibration samples.npz", "--calibration goes with --quantize int8"),
        ("--quantize int8 --calibration no.npz", "there is no such file or folder"),
        ("--quantize int8 --calibration samples.npz --dtype fp16", "does not go with --dtype fp16"),
        ("--quantize int8 --calibration samples.npz --quantize-error 0", "give a number above 0"),
        ("--quantize int8 --calibration bad.npz", "its arrays are x, the model's inputs are image"),
    ],
)
def test_what_cannot_be_is_an_error_of_one_line_with_the_next_step(
    line: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    models.mobile(Path("net.onnx"), blocks=1)
    models.samples(Path("samples.npz"))
    models.samples(Path("bad.npz"), x=(1, 3, 32, 32))
    assert main(["deploy", "net.onnx", *line.split()]) == 2
    [error] = capsys.readouterr().err.splitlines()
    assert said in error
    assert not Path("edgetlm-out").exists()


def test_the_records_of_a_quantised_model_need_its_samples_too() -> None:
    models.mobile(Path("net.onnx"), blocks=1)
    with pytest.raises(UserError, match="an ONNX model needs samples of its inputs: give --calibration"):
        tasks_of(CompileOptions(model=Path("net.onnx"), quantize="int8"), "local", Silence())


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("net.tflite", b"\0\0\0\0TFL3", "a TFLite model is quantised when it is made"),
        ("net.pt2", b"PK\x05\x06", "torch.onnx.export"),
    ],
)
def test_other_formats_say_what_to_do(
    name: str, content: bytes, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(name).write_bytes(content)
    models.samples(Path("samples.npz"))
    assert main(["deploy", name, "--quantize", "int8", "--calibration", "samples.npz"]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("quantised_here")
def test_a_quantised_model_on_an_emulated_board(capsys: pytest.CaptureFixture[str]) -> None:
    models.mobile(Path("net.onnx"), blocks=1)
    models.samples(Path("samples.npz"))
    typed(capsys, "devices emulate aarch64 --name board --board raspberry_pi_5")
    said = typed(
        capsys,
        "deploy net.onnx --device board --threads 1 --quantize int8 --calibration samples.npz --json a.json",
    )
    assert "quantised 5 of 5 layers" in said
    found = figures("a.json")
    assert found["backend"] == "tvm" and found["verify"]["passed"] and found["emulated"]
    assert found["quantisation"]["activations"] == "int8"
