"""One bundle for a range of lengths, from the command line to every length of it on the device."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import device_agent.runtime
import sdk
from host import bundle
from host.deploy import DeployOptions, compile_bundle, deploy
from host.errors import DeviceError, ShapeError
from host.options import CompileOptions
from sdk.cli.main import main
from sdk.report.html import render
from tests.integration import small_models

LOW, HIGH = 1, 40
SHAPES = {"seq": ((LOW, HIGH),)}


def inputs_of(length: int) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(length)
    mask = np.ones((1, length), np.int64)
    mask[0, 1 + length // 2 :] = 0
    return {"tokens": draw.integers(0, 50, (1, length)), "mask": mask}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model file and its bundle for 1 to 40."""
    folder = tmp_path_factory.mktemp("range")
    model = small_models.encoder(folder / "encoder.onnx", hidden=16)
    options = CompileOptions(model, backend="tvm", shapes=SHAPES, threads=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        compile_bundle(options, "local", folder / "bundle")
    return model, folder / "bundle"


def test_every_length_of_the_range_is_served(served: tuple[Path, Path]) -> None:
    model, path = served
    peer = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    with sdk.load(path) as loaded:
        # Back and forth, so that no length rests on what the one before left in memory.
        for length in [*range(LOW, HIGH + 1), HIGH, LOW, 17]:
            given = inputs_of(length)
            outputs = loaded.run(given)
            for value, expected in zip(outputs.values(), peer.run(None, given), strict=True):
                assert value.shape == expected.shape
                np.testing.assert_allclose(value, expected, rtol=1e-3, atol=1e-4)


def test_every_length_is_served_by_several_threads(tmp_path: Path) -> None:
    model = small_models.encoder(tmp_path / "encoder.onnx", hidden=64)
    options = CompileOptions(model, backend="tvm", shapes=SHAPES, threads=2)
    compile_bundle(options, "local", tmp_path / "bundle")
    peer = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    with sdk.load(tmp_path / "bundle") as loaded:
        for length in [*range(LOW, HIGH + 1), HIGH, LOW, 17]:
            given = inputs_of(length)
            for value, expected in zip(loaded.run(given).values(), peer.run(None, given), strict=True):
                np.testing.assert_allclose(value, expected, rtol=1e-3, atol=1e-4)


def test_a_width_that_is_halved_twice_is_served(tmp_path: Path) -> None:
    # Behind the first convolution no tensor has an axis of the width; the mean divides by a rounded number.
    model = small_models.wide_image(tmp_path / "wide.onnx")
    shapes = {"image": (1, 3, 28, (33, 75))}
    options = CompileOptions(model, backend="tvm", shapes=shapes, threads=1)
    compile_bundle(options, "local", tmp_path / "bundle")
    peer = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    with sdk.load(tmp_path / "bundle") as loaded:
        for width in [*range(33, 76), 33]:
            given = {"image": np.random.default_rng(width).random((1, 3, 28, width), np.float32)}
            for value, expected in zip(loaded.run(given).values(), peer.run(None, given), strict=True):
                assert value.shape == expected.shape
                np.testing.assert_allclose(value, expected, rtol=1e-3, atol=1e-4)


def test_the_manifest_states_the_range(served: tuple[Path, Path]) -> None:
    manifest = bundle.load(served[1])
    length = manifest.signature.length
    assert length is not None
    assert (length.name, length.low, length.high) == ("seq", LOW, HIGH)
    assert [(t.shape, t.open) for t in manifest.signature.inputs] == [((1, HIGH), (1,))] * 2
    assert [(t.shape, t.open) for t in manifest.signature.outputs] == [((1, HIGH, 16), (1,)), ((1, 16), ())]
    cases = bundle.golden_cases(served[1], manifest)
    lengths = [case.inputs[0].shape[1] for case in cases]
    assert {LOW, LOW + 1, HIGH - 1, HIGH, *length.measured} <= set(lengths)
    assert all(kernel.source == "gensor" for kernel in manifest.kernels if "dense" in kernel.name)


@pytest.mark.usefixtures("trusted_here")
def test_an_application_runs_any_length_and_is_refused_others(served: tuple[Path, Path]) -> None:
    model = device_agent.runtime.load(served[1])
    assert model.run(inputs_of(3))["hidden"].shape == (1, 3, 16)
    assert model.run(inputs_of(40))["hidden"].shape == (1, 40, 16)
    with pytest.raises(ValueError, match=r"input tokens has length 41, the model takes seq=1\.\.40; give"):
        model.run(inputs_of(41))
    mixed = inputs_of(4) | {"mask": inputs_of(5)["mask"]}
    with pytest.raises(ValueError, match="input mask has length 5, but tokens has 4"):
        model.run(mixed)
    with pytest.raises(ValueError, match=r"input tokens is int64\[4\], the model takes int64\[1, seq\]"):
        model.run({name: value[0] for name, value in inputs_of(4).items()})


def test_a_session_refuses_what_the_range_does_not_hold(served: tuple[Path, Path]) -> None:
    with sdk.load(served[1]) as model, pytest.raises(ShapeError, match=r"length 41, .* seq=1\.\.40"):
        model.run(inputs_of(41))
    with sdk.connect("local") as device, device.open_session("tvm", threads=1) as session:
        session.load(served[1])
        with pytest.raises(DeviceError, match=r"length 41, the model takes seq=1\.\.40"):
            session.run(list(inputs_of(41).values()))
        assert session.run(list(inputs_of(2).values()))[0].shape == (1, 2, 16)


def test_deployment_verifies_measures_and_chooses_over_the_lengths(
    served: tuple[Path, Path], tmp_path: Path
) -> None:
    options = DeployOptions(
        served[0], shapes=SHAPES, lengths=(2, 33), threads=1, rounds=6, bundle=tmp_path / "bundle"
    )
    result = deploy(options)
    assert result.verification.passed and 0 < result.verification.max_rel_err < 1e-4
    assert [one.length for one in result.lengths] == [2, 33]
    assert all(set(one.measurements) == {"tvm", "onnxruntime"} for one in result.lengths)
    assert result.measurement is result.contenders[result.choice.backend].measurement
    value = np.prod([one.ratios["onnxruntime"][0] for one in result.lengths]) ** 0.5
    assert result.ratios["onnxruntime"][0] == pytest.approx(value, rel=0.3)
    assert "over 2 lengths" in result.choice.why
    text = render(result)
    assert "measured lengths" in text and "1..40" in text
    manifest = bundle.load(tmp_path / "bundle")
    assert [one["length"] for one in manifest.measured["lengths"]] == [2, 33]


def test_wrong_outputs_are_never_installed(
    served: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from host.compile import model_compiler
    from host.compile.ranged_model import compile_ranged as right

    def wrong(*arguments: object) -> object:
        made = right(*arguments)  # type: ignore[arg-type]
        changed = tuple(value + 1 if value.shape == (16,) else value for value in made.parameters)
        return replace(made, parameters=changed)

    monkeypatch.setattr(model_compiler, "compile_ranged", wrong)
    command = ["deploy", str(served[0]), "--shape", "seq=1..40", "--threads", "1", "--backend", "tvm"]
    assert main([*command, "--bundle", str(tmp_path / "bundle")]) == 1
    assert "nothing was installed" in capsys.readouterr().err
    assert not (tmp_path / "bundle").exists()


def test_commands_that_read_bundles_know_the_range(
    served: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "in.npz", **inputs_of(9))
    assert main(["run", str(served[1]), "--input", str(tmp_path / "in.npz")]) == 0
    assert "hidden  float32[1, 9, 16]" in capsys.readouterr().out
    assert main(["explain", str(served[1]), "--task", "softmax"]) == 2
    assert "a kernel is explained at one length" in capsys.readouterr().err
    assert main(["profile", str(served[1]), "--lengths", "41"]) == 2
    assert "outside the range seq=1..40" in capsys.readouterr().err
    figures = tmp_path / "figures.json"
    assert main(["profile", str(served[1]), "--lengths", "5", "--json", str(figures)]) == 0
    assert [one["length"] for one in json.loads(figures.read_text())["lengths"]] == [5]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--shape", "seq=5..2"], "a range goes from the lesser to the greater size"),
        (["--shape", "seq=0..4"], "positive numbers"),
        (["--shape", "seq=..4"], "write it as NAME=1,128 or NAME=1..512"),
        (["--shape", "length=1..4"], "names 'length', but inputs and dimensions are tokens, mask, seq"),
        (["--shape", "seq=1..40", "--trials", "8"], "kernels are measured at one length"),
        (["--shape", "seq=1..40", "--lengths", "64"], "outside the range seq=1..40"),
        (["--lengths", "64"], "--lengths goes with a range"),
    ],
)
def test_a_range_that_cannot_be_is_refused_in_one_line(
    served: tuple[Path, Path], arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["deploy", str(served[0]), *arguments]) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1


def test_a_file_of_another_format_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(b"\x1c\x00\x00\x00TFL3" + bytes(64))
    assert main(["deploy", str(path), "--shape", "x=1..4"]) == 2
    assert "needs an ONNX file with an open dimension" in capsys.readouterr().err
