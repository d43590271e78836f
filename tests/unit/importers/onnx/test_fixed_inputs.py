from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from host.errors import ShapeError, UserError
from host.importers import load_here as load
from host.importers.onnx.fixed_inputs import fixed_arrays
from host.importers.pins import DeclaredInput
from host.options import CompileOptions
from host.options.of_model import check_for_model
from tests.unit.importers.harness import check, graph, value


def _resized(path: Path, ir_version: int = 10) -> Path:
    """A model whose output has the shape that its second input says."""
    nodes = [helper.make_node("Expand", ["x", "size"], ["wide"]), helper.make_node("Relu", ["wide"], ["y"])]
    inputs = {"x": np.ones((1, 3), np.float32), "size": np.array([4, 3])}
    model = graph(nodes, inputs, [value("y", inputs["x"], ["rows", 3])])
    model.ir_version = ir_version
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("ir_version", [3, 10])
def test_a_shape_that_depends_on_a_fixed_input_is_known(tmp_path: Path, ir_version: int) -> None:
    model = check(load(_resized(tmp_path / "m.onnx", ir_version), values={"size": [5, 3]}))
    assert [spec.name for spec in model.signature.inputs] == ["x"]
    assert model.signature.outputs[0].shape == (5, 3)
    # Peers read a file of the same inputs.
    assert [entry.name for entry in onnx.load(model.path).graph.input] == ["x"]


def test_without_the_values_the_reason_names_the_option(tmp_path: Path) -> None:
    model = load(_resized(tmp_path / "m.onnx"), samples=[[np.ones((1, 3), np.float32), np.array([4, 3])]])
    assert model.module is None
    assert model.reason.endswith("; --value size=N,... fixes an input while compiling")


def test_other_values_are_another_model(tmp_path: Path) -> None:
    path = _resized(tmp_path / "m.onnx")
    two = [load(path, values={"size": [rows, 3]}) for rows in (5, 6)]
    assert two[0].content_hash != two[1].content_hash
    assert [model.signature.outputs[0].shape for model in two] == [(5, 3), (6, 3)]


def test_golden_outputs_are_those_of_the_original_with_the_input_fed(tmp_path: Path) -> None:
    path = _resized(tmp_path / "m.onnx")
    asked = []

    def reference(engine: str, file: Path, cases: list[list[np.ndarray]]) -> list[list[np.ndarray]]:
        asked.append((file, [[array.tolist() for array in case] for case in cases]))
        return [[np.broadcast_to(x, size)] for x, size in cases]

    x = np.array([[1, 2, 3]], np.float32)
    load(path, samples=[[x]], reference=reference, values={"size": [2, 3]})
    # The second run says whether the outputs change from run to run.
    assert len(asked) == 2
    for file, cases in asked:
        assert [entry.name for entry in onnx.load(file).graph.input] == ["x", "size"]
        assert cases == [[x.tolist(), [2, 3]]]


def test_one_number_fills_an_input_of_open_shape(tmp_path: Path) -> None:
    x = np.ones((2, 700), np.float32)
    model = graph([helper.make_node("Mul", ["x", "mask"], ["y"])], {}, [value("y", x, ["b", "n"])])
    model.graph.input.extend(value(name, x, ["b", "n"]) for name in ("x", "mask"))
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    read = check(load(path, {"x": (2, 700)}, values={"mask": [0.5]}))
    for case in read.golden:
        np.testing.assert_array_equal(case.outputs[0], case.inputs[0] * np.float32(0.5))


def test_a_branch_by_the_number_of_fixed_values_is_taken(tmp_path: Path) -> None:
    x = np.ones((3,), np.float32)
    then, other = (
        helper.make_graph([helper.make_node(kind, ["x"], ["made"])], kind, [], [value("made", x)])
        for kind in ("Neg", "Abs")
    )
    nodes = [
        helper.make_node("Size", ["size"], ["count"]),
        helper.make_node("Equal", ["count", "two"], ["is_two"]),
        helper.make_node("If", ["is_two"], ["y"], then_branch=then, else_branch=other),
    ]
    inputs = {"x": x, "size": np.array([4, 3])}
    path = tmp_path / "m.onnx"
    path.write_bytes(graph(nodes, inputs, [value("y", x)], {"two": np.array(2)}).SerializeToString())
    for case in check(load(path, values={"size": [1, 2]})).golden:
        np.testing.assert_array_equal(case.outputs[0], -case.inputs[0])


DECLARED = [
    DeclaredInput("size", (2,), "int32"),
    DeclaredInput("flag", (), "bool"),
    DeclaredInput("half", (), "float16"),
    DeclaredInput("vast", (1 << 25,), "uint8"),
]
SHAPES = {"size": (2,), "flag": (), "half": (), "vast": (1 << 25,)}


def test_numbers_take_the_type_of_their_input() -> None:
    made = fixed_arrays("m", DECLARED, SHAPES, {"size": [3], "flag": [True], "half": [1]})
    assert {name: (array.dtype.name, array.tolist()) for name, array in made.items()} == {
        "size": ("int32", [3, 3]),
        "flag": ("bool", True),
        "half": ("float16", 1.0),
    }


@pytest.mark.parametrize(
    ("name", "numbers", "words"),
    [
        ("size", [1, 2, 3], r"size gives 3 numbers, the input has 2 \(2\): give one or all"),
        ("size", [0.5], "0.5 is no number of type int32"),
        ("size", [1 << 31], "2147483648 is no number of type int32"),
        ("size", [float("inf")], "inf is no number of type int32"),
        ("size", [float("nan")], "nan is no number of type int32"),
        ("size", [], "gives 0 numbers"),
        ("size", [1] * 5000, "at most 4096 numbers"),
        ("flag", [2], "2 is neither true nor false"),
        ("half", [1e6], r"1000000.0 is no number of type float16"),
        ("half", [float("nan")], "nan is no number"),
        ("vast", [1], "at most 16777216 elements"),
    ],
)
def test_numbers_that_do_not_fit(name: str, numbers: list[float], words: str) -> None:
    with pytest.raises(ShapeError, match=words):
        fixed_arrays("m", DECLARED, SHAPES, {name: numbers})


def test_a_name_that_is_no_input(tmp_path: Path) -> None:
    with pytest.raises(ShapeError, match="--value names 'sise', but the inputs are x, size"):
        load(_resized(tmp_path / "m.onnx"), values={"sise": [1]})


@pytest.mark.parametrize(
    ("settings", "kind", "words"),
    [
        ({}, "tflite", "--value goes only with an ONNX file"),
        ({}, "pt2", "--value goes only with an ONNX file"),
        ({}, "gguf", "--value does not go with a language model"),
        ({"quantize": "int8"}, "onnx", "--value does not go with --quantize int8"),
        ({"shapes": {"n": ((1, 8),)}}, "onnx", "--value does not go with a range of lengths"),
    ],
)
def test_values_go_only_with_fixed_onnx_models(settings: dict[str, Any], kind: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        check_for_model(CompileOptions(values={"x": (1,)}, **settings), Path("m"), kind)
