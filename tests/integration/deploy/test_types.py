"""Types of layers that a deployment chooses, from the command line to verified outputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from host import bundle
from sdk.cli.main import main
from tests.integration import small_models
from tests.integration.boards.cli import sdk as typed
from tests.unit.schedules.cpu import bfloat16_cases as cases

needs_the_instruction = pytest.mark.skipif(not cases.runs_here(), reason="no AVX-512 BF16")
DEPLOY = "deploy net.onnx --threads 1 --backend tvm --json a.json"


def figures() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path("a.json").read_text())
    return found


def layers(found: dict[str, Any]) -> dict[str, str]:
    """The types of the layers, by name."""
    return {one["name"]: one["dtype"] for one in found["types"]["layers"]}


@needs_the_instruction
def test_one_layer_that_loses_too_much_stays_in_fp32_and_the_model_verifies(
    capsys: pytest.CaptureFixture[str],
) -> None:
    small_models.cancelling(Path("net.onnx"))
    assert main([*DEPLOY.split(), "--dtype", "bf16"]) != 0
    assert "differs by" in capsys.readouterr().err
    said = typed(capsys, f"{DEPLOY} --dtype auto --tolerance 2e-2")
    assert "types     5 of 6 layers in bf16, estimated" in said and "in fp32   cancel: 0." in said
    found = figures()
    assert (
        found["verify"]["passed"] and found["verify"]["max_rel_err"] <= found["verify"]["tolerance"] == 2e-2
    )
    assert {name for name, dtype in layers(found).items() if dtype == "fp32"} == {"cancel"}
    types = found["types"]
    assert (types["dtype"], types["half"], types["group"]) == ("bf16", "bf16", 1)
    # Each layer alone, all in halves, and what the search tried between.
    assert 8 <= types["compiled"] <= 6 + 2 * 3 + 1 and len(types["front"]) == types["compiled"]
    [taken] = [point for point in types["front"] if point["taken"]]
    assert taken["kept"] == 1 and taken["error"] <= 2e-2 and taken["estimate_ms"] < types["single_ms"]
    assert found["plan"]["decisions"] == {"type of cancel": 0}
    made = Path("edgetlm-out/net")
    manifest = bundle.load(made / "bundle")
    assert manifest.dtype == "bf16" and manifest.measured["types"] == types
    page = (made / "report.html").read_text()
    assert "The types of the layers" in page and "estimated milliseconds of a run" in page
    assert "fp32 (the passes: halves)" in typed(
        capsys, f"explain {made / 'bundle'} --task fused_packed_dense_add_relu"
    )


@needs_the_instruction
def test_a_model_that_loses_little_is_in_bfloat16_after_one_compilation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    small_models.cancelling(Path("net.onnx"), large=0.0)
    said = typed(capsys, f"{DEPLOY} --dtype auto --threads 2 --peer onnxruntime,tvm-fp32")
    assert "types     all 6 layers in bf16" in said
    found = figures()
    assert found["types"]["compiled"] == 1 and set(layers(found).values()) == {"bf16"}
    assert found["verify"]["tolerance"] == 5e-2 and set(found["peers"]) == {"onnxruntime", "tvm-fp32"}


@needs_the_instruction
def test_a_tolerance_that_nothing_meets_ends_in_fp32(capsys: pytest.CaptureFixture[str]) -> None:
    small_models.cancelling(Path("net.onnx"), layers=1)
    said = typed(capsys, f"{DEPLOY} --dtype auto --tolerance 1e-9")
    assert "types     fp32: of bf16, no layer that would save time is within the tolerance" in said
    found = figures()
    assert set(layers(found).values()) == {"fp32"} and found["types"]["dtype"] == "fp32"
    assert found["verify"]["max_rel_err"] < 1e-4 and found["verify"]["tolerance"] == 1e-3
    assert bundle.load(Path("edgetlm-out/net/bundle")).dtype == "fp32"


@needs_the_instruction
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (small_models.doubled, "types     fp32: no layer multiplies constant weights"),
        (small_models.uncompiled_operator, "the model is not compiled, and stays as it is"),
    ],
)
def test_a_model_without_such_layers_is_deployed_in_fp32(
    make: Any, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make(Path("net.onnx"))
    assert main(["deploy", "net.onnx", "--threads", "1", "--dtype", "auto", "--json", "a.json"]) == 0
    shown = capsys.readouterr()
    assert said in shown.out + shown.err
    assert figures()["verify"]["passed"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("deploy net.onnx --dtype auto --tolerance 0", "half precision always loses something"),
        ("deploy net.onnx --dtype auto --tolerance nan", "give a number above 0"),
        ("deploy net.onnx --dtype auto --tolerance 0.3", "--tolerance 0.3: give 0 to 0.2"),
        ("deploy net.onnx --tolerance 0.1", "--tolerance goes with --dtype auto"),
        ("deploy net.onnx --dtype auto --processor gpu", "--dtype auto is for the CPU"),
        ("deploy net.onnx --dtype auto --shape batch=1..4", "does not go with a range of lengths"),
        ("tune net.onnx --dtype auto --trials 4", "--dtype auto is for sdk deploy"),
        ("compile net.onnx --dtype auto -o out", "--dtype auto compares outputs on a device: use sdk deploy"),
    ],
)
def test_what_cannot_be_is_an_error_of_one_line(
    line: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    small_models.convnet(Path("net.onnx"), batch="batch")
    assert main(line.split()) == 2
    [error] = capsys.readouterr().err.splitlines()
    assert said in error
    assert not Path("edgetlm-out").exists()


@pytest.mark.timeout(1200)
def test_an_emulated_board_with_arithmetic_in_halves_gets_a_mixed_model(
    capsys: pytest.CaptureFixture[str],
) -> None:
    small_models.cancelling(Path("net.onnx"), wide=64, layers=2)
    typed(capsys, "devices emulate aarch64 --name board --board raspberry_pi_5")
    said = typed(capsys, f"{DEPLOY} --device board --dtype auto")
    assert "layers in fp16, estimated" in said
    found = figures()
    assert found["verify"]["passed"] and found["verify"]["tolerance"] == 1e-2
    assert layers(found)["cancel"] == "fp32" and "fp16" in layers(found).values()


@pytest.mark.timeout(1200)
def test_a_board_without_a_fast_half_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    small_models.convnet(Path("net.onnx"))
    typed(capsys, "devices emulate aarch64 --name board --board raspberry_pi_4")
    assert main(["deploy", "net.onnx", "--device", "board", "--dtype", "auto"]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "computes in no type of half precision faster than in fp32: use --dtype fp32" in error
