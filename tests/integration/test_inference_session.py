"""`sdk.inference_session`: ONNX files in place of ONNX Runtime, with its outputs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import sdk.inference_session as ort
from host.errors import ModelFileError, UserError
from sdk.cli.main import main
from tests.integration import small_models


@pytest.fixture(autouse=True)
def private_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cache", "data", "config"):
        monkeypatch.setenv(f"XDG_{name.upper()}_HOME", str(tmp_path / name))


def feed(session: onnxruntime.InferenceSession, sizes: dict[str, int]) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    made = {}
    for one in session.get_inputs():
        shape = [sizes.get(size, size) for size in one.shape]
        if one.type == "tensor(int64)":
            made[one.name] = draw.integers(0, 2, shape)
        else:
            made[one.name] = draw.normal(size=shape).astype("float32")
    return made


@pytest.mark.parametrize(
    ("build", "sizes"),
    [
        (small_models.convnet, {}),
        (lambda path: small_models.convnet(path, batch="batch"), {"batch": 3}),
        (small_models.encoder, {"seq": 8}),
    ],
    ids=["convnet", "open batch", "encoder"],
)
def test_outputs_are_those_of_onnx_runtime(build, sizes: dict[str, int], tmp_path: Path) -> None:
    path = build(tmp_path / "model.onnx")
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    for name, size in sizes.items():
        options.add_free_dimension_override_by_name(name, size)
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    theirs = onnxruntime.InferenceSession(str(path))
    inputs = feed(theirs, sizes)
    ours = session.run(None, inputs)
    for mine, expected in zip(ours, theirs.run(None, inputs), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-4, atol=1e-5)
    for mine, other in zip(session.get_inputs(), theirs.get_inputs(), strict=True):
        assert (mine.name, mine.type) == (other.name, other.type)
        assert mine.shape == [sizes.get(size, size) for size in other.shape]


def test_a_model_is_compiled_once_and_again_where_it_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []
    run = subprocess.run

    def counted(command, **options):
        started.append(command)
        return run(command, **options)

    monkeypatch.setattr(subprocess, "run", counted)
    path = small_models.convnet(tmp_path / "model.onnx")
    first = ort.InferenceSession(path).get_provider_options()
    # The bytes are the same model.
    assert ort.InferenceSession(path.read_bytes()).get_provider_options() == first
    assert len(started) == 1
    small_models.convnet(path, seed=1)
    assert ort.InferenceSession(path).get_provider_options() != first
    assert len(started) == 2


def test_weights_in_another_file_are_part_of_the_content(tmp_path: Path) -> None:
    made = onnx.load(small_models.convnet(tmp_path / "inside.onnx"))
    path, weights = tmp_path / "model.onnx", tmp_path / "weights.bin"
    onnx.save(made, path, save_as_external_data=True, location=weights.name, size_threshold=0)
    first = ort.InferenceSession(path)
    inputs = feed(onnxruntime.InferenceSession(path), {})
    before = first.run(None, inputs)[0]
    values = np.frombuffer(weights.read_bytes(), "float32")
    weights.write_bytes((values * 2).tobytes())
    after = ort.InferenceSession(path).run(None, inputs)[0]
    expected = onnxruntime.InferenceSession(path).run(None, inputs)[0]
    np.testing.assert_allclose(after, expected, rtol=1e-4, atol=1e-5)
    assert not np.allclose(before, after)


@pytest.mark.parametrize("name", ["bundle", "bundle.zip"])
def test_a_bundle_is_loaded_as_it_is(name: str, tmp_path: Path) -> None:
    path = small_models.convnet(tmp_path / "model.onnx")
    assert main(["compile", str(path), "-o", str(tmp_path / name), "--threads", "1"]) == 0
    ort.InferenceSession(path)
    session = ort.InferenceSession(tmp_path / name)
    theirs = onnxruntime.InferenceSession(path)
    inputs = feed(theirs, {})
    np.testing.assert_allclose(
        session.run(None, inputs)[0], theirs.run(None, inputs)[0], rtol=1e-4, atol=1e-5
    )


def test_mistakes_are_one_line_with_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="no such file"):
        ort.InferenceSession(tmp_path / "absent.onnx")
    with pytest.raises(UserError, match=r"open dimension \('seq'\).*add_free_dimension_override_by_name"):
        ort.InferenceSession(small_models.encoder(tmp_path / "encoder.onnx"))
    (tmp_path / "text.onnx").write_text("no model")
    with pytest.raises(UserError, match=r"text\.onnx: not an ONNX model"):
        ort.InferenceSession(tmp_path / "text.onnx")
