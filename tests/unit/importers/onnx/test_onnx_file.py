"""Reading ONNX files, good and bad."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from host.errors import EngineError, ModelFileError, ShapeError
from host.importers import load_here as load
from host.importers.onnx.model_file import read_onnx
from host.model_file import detect_format
from tests.unit.importers.harness import check, graph, value

X = np.zeros((2, 64), np.float32)
WEIGHT = np.random.default_rng(0).normal(size=(64, 32)).astype(np.float32)


def product(path: Path, weight: np.ndarray = WEIGHT) -> Path:
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    model = graph([node], {"x": X}, [value("y", X, (2, 32))], {"w": weight})
    path.write_bytes(model.SerializeToString())
    return path


def external(path: Path) -> Path:
    model = onnx.load(product(path))
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    return path


def test_large_weights_leave_the_graph(tmp_path: Path) -> None:
    file = read_onnx(product(tmp_path / "m.onnx"))
    assert list(file.weights) == ["w"] and not file.model.graph.initializer
    np.testing.assert_array_equal(file.weights["w"], WEIGHT)


def test_initialisers_listed_as_inputs_are_no_inputs(tmp_path: Path) -> None:
    path = product(tmp_path / "m.onnx")
    model = onnx.load(path)
    model.graph.input.append(value("w", WEIGHT))
    path.write_bytes(model.SerializeToString())
    imported = check(load(path))
    assert [entry.name for entry in imported.signature.inputs] == ["x"]


def test_weights_in_another_file(tmp_path: Path) -> None:
    path = external(tmp_path / "m.onnx")
    assert isinstance(read_onnx(path).weights["w"], np.memmap)
    imported = check(load(path))
    assert imported.path != path and "weights" not in {entry.name for entry in imported.path.parent.iterdir()}
    assert onnx.load(imported.path, load_external_data=False).graph.initializer[0].raw_data


def test_the_hash_sees_weights_in_another_file(tmp_path: Path) -> None:
    path = external(tmp_path / "m.onnx")
    before = load(path).content_hash
    data = bytearray((tmp_path / "weights.bin").read_bytes())
    data[0] ^= 1
    (tmp_path / "weights.bin").write_bytes(bytes(data))
    assert load(path).content_hash != before


def cut(path: Path) -> Path:
    product(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return path


def empty(path: Path) -> Path:
    path.touch()
    return path


def text(path: Path) -> Path:
    path.write_text("this is not a model\n" * 50)
    return path


def missing(path: Path) -> Path:
    return path


def directory(path: Path) -> Path:
    path.mkdir()
    return path


def opset(path: Path) -> Path:
    model = onnx.load(product(path))
    model.opset_import[0].version = 99
    path.write_bytes(model.SerializeToString())
    return path


def not_a_number(path: Path) -> Path:
    weight = WEIGHT.copy()
    weight[3, 4] = np.nan
    return product(path, weight)


def small_not_a_number(path: Path) -> Path:
    node = helper.make_node("Add", ["x", "bias"], ["y"])
    constants = {"bias": np.array([np.nan] * 64, np.float32)}
    path.write_bytes(graph([node], {"x": X}, [value("y", X)], constants).SerializeToString())
    return path


def weights_gone(path: Path) -> Path:
    external(path)
    (path.parent / "weights.bin").unlink()
    return path


def weights_cut(path: Path) -> Path:
    external(path)
    data = (path.parent / "weights.bin").read_bytes()
    (path.parent / "weights.bin").write_bytes(data[:100])
    return path


def weights_elsewhere(path: Path) -> Path:
    external(path)
    model = onnx.load(path, load_external_data=False)
    model.graph.initializer[0].external_data[0].value = "../../etc/passwd"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (missing, "no such file"),
        (directory, "a folder without config.json"),
        (empty, "empty"),
        (text, "not an ONNX model"),
        (cut, "truncated"),
        (opset, "operator set 99 is unknown"),
        (not_a_number, "weight 'w' holds NaN"),
        (small_not_a_number, "weight 'bias' holds NaN"),
        (weights_gone, "weights.bin is missing"),
        (weights_cut, "weights.bin is truncated"),
        (weights_elsewhere, "outside the model's directory"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path: Path, make, words: str) -> None:
    with pytest.raises(ModelFileError, match=words) as caught:
        load(make(tmp_path / "model.onnx"))
    assert "\n" not in str(caught.value) and "model.onnx" in str(caught.value)
    assert caught.value.exit_code == 2


def test_every_truncation_is_an_error_of_ours(tmp_path: Path) -> None:
    data = product(tmp_path / "whole.onnx").read_bytes()
    path = tmp_path / "model.onnx"
    for length in (1, 2, 7, 50, 100, len(data) - 4200, len(data) - 1):
        path.write_bytes(data[:length])
        with pytest.raises(ModelFileError):
            load(path)


def test_an_operator_that_nobody_has(tmp_path: Path) -> None:
    node = helper.make_node("Frobnicate", ["x"], ["y"], domain="com.example")
    model = graph([node], {"x": X}, [value("y", X)])
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(EngineError, match="Frobnicate") as caught:
        load(path)
    assert "\n" not in str(caught.value)


def test_an_operator_that_only_the_runtime_has(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["n"]),
        helper.make_node("Cast", ["n"], ["y"], to=TensorProto.FLOAT),
    ]
    path = tmp_path / "m.onnx"
    path.write_bytes(graph(nodes, {"x": X}, [value("y", X, (2, "found"))]).SerializeToString())
    model = load(path)
    assert model.module is None and model.operator == "NonZero" and "NonZero" in model.reason
    assert len(model.golden) == 3


def test_open_dimensions_are_pinned(tmp_path: Path) -> None:
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    model = graph([node], {}, [value("y", X, ("batch", 32))], {"w": WEIGHT})
    model.graph.input.append(value("x", X, ("batch", 64)))
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ShapeError, match="--shape x=N,64"):
        load(path)
    imported = check(load(path, {"x": (5, 64)}))
    assert imported.signature.inputs[0].shape == (5, 64) and imported.signature.outputs[0].shape == (5, 32)
    pinned = onnx.load(imported.path).graph.input[0].type.tensor_type.shape.dim
    assert [size.dim_value for size in pinned] == [5, 64]
    assert imported.content_hash != load(path, {"x": (6, 64)}).content_hash


def test_formats_are_told_by_content(tmp_path: Path) -> None:
    assert detect_format(product(tmp_path / "model.bin")) == "onnx"
    lite = tmp_path / "model.onnx"
    lite.write_bytes(b"\x1c\x00\x00\x00TFL3" + b"\x00" * 50)
    assert detect_format(lite) == "tflite"
    unknown = tmp_path / "model.xyz"
    unknown.write_text("text")
    with pytest.raises(ModelFileError, match=r"\.onnx, \.pt2 \(torch\.export\), \.tflite or \.gguf"):
        detect_format(unknown)
