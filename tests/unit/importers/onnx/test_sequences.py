"""Sequences: resolved inside of a graph, tensors at its inputs and outputs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

from host.errors import ImportFailed, ShapeError
from host.importers import load_here as load
from tests.unit.importers.harness import check, graph, value

X = np.arange(12, dtype=np.float32).reshape(3, 4)
SEQUENCE = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, None))


def number(name: str, held: int | Sequence[int]) -> NodeProto:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.array(held, np.int64)))


def written(path: Path, model: onnx.ModelProto) -> Path:
    path.write_bytes(model.SerializeToString())
    return path


def of_sequences(
    path: Path, nodes: list[NodeProto], inputs: Sequence[onnx.ValueInfoProto], outputs: Sequence[str]
) -> Path:
    made = [helper.make_value_info(name, SEQUENCE) for name in outputs]
    body = helper.make_graph(nodes, "net", list(inputs), made)
    return written(path, helper.make_model(body, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))


@pytest.mark.parametrize("opset", [11, 18])
@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        # As torch exports `unbind` and `chunk`.
        (
            [
                helper.make_node("SplitToSequence", ["x"], ["s"], axis=1, keepdims=0),
                number("k", -1),
                helper.make_node("SequenceAt", ["s", "k"], ["y"]),
            ],
            X[:, 3],
        ),
        (
            [
                number("size", 2),
                helper.make_node("SplitToSequence", ["x", "size"], ["s"], axis=0),
                number("k", 1),
                helper.make_node("SequenceAt", ["s", "k"], ["y"]),
            ],
            X[2:],
        ),
        (
            [
                number("sizes", [1, 3]),
                helper.make_node("SplitToSequence", ["x", "sizes"], ["s"], axis=-1),
                number("back", -1),
                helper.make_node("Neg", ["x"], ["n"]),
                helper.make_node("SequenceInsert", ["s", "n", "back"], ["t"]),
                helper.make_node("ConcatFromSequence", ["t"], ["y"], axis=1),
            ],
            np.concatenate([X[:, :1], -X, X[:, 1:]], axis=1),
        ),
        (
            [
                helper.make_node("Neg", ["x"], ["n"]),
                helper.make_node("SequenceEmpty", [], ["e"]),
                helper.make_node("SequenceInsert", ["e", "x"], ["one"]),
                helper.make_node("SequenceInsert", ["one", "n"], ["two"]),
                helper.make_node("SequenceInsert", ["two", "x"], ["three"]),
                number("first", 0),
                helper.make_node("SequenceErase", ["three", "first"], ["s"]),
                helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=-1, new_axis=1),
            ],
            np.stack([-X, X], axis=-1),
        ),
        (
            [
                helper.make_node("SequenceConstruct", ["x", "x"], ["s"]),
                helper.make_node("SequenceLength", ["s"], ["n"]),
                helper.make_node("Cast", ["n"], ["f"], to=TensorProto.FLOAT),
                helper.make_node("Mul", ["x", "f"], ["y"]),
            ],
            2 * X,
        ),
    ],
)
def test_sequences_inside_of_a_graph_are_resolved(
    tmp_path: Path, opset: int, nodes: list[NodeProto], expected: np.ndarray
) -> None:
    model = graph(nodes, {"x": X}, [value("y", expected, list(expected.shape))])
    model.opset_import[0].version = opset
    read = check(load(written(tmp_path / "m.onnx", model), samples=[[X]]))
    np.testing.assert_array_equal(read.golden[0].outputs[0], expected)


def test_a_place_that_nobody_knows_leaves_the_model_to_its_runtime(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "x"], ["s"]),
        helper.make_node("SequenceAt", ["s", "k"], ["y"]),
    ]
    model = graph(nodes, {"x": X, "k": np.array(1)}, [value("y", X, [3, 4])])
    read = load(written(tmp_path / "m.onnx", model), samples=[[X, np.array(1)]])
    assert read.module is None and "SequenceAt" in read.reason


def test_inputs_and_outputs_become_tensors(tmp_path: Path) -> None:
    inputs = [helper.make_value_info("s", SEQUENCE), value("x", X, [3, 4])]
    nodes = [
        number("front", 0),
        helper.make_node("SequenceInsert", ["s", "x", "front"], ["t"]),
    ]
    path = of_sequences(tmp_path / "m.onnx", nodes, inputs, ["t"])
    read = check(load(path, {"s.0": (2, 2), "s.1": (5,)}))
    assert [(one.name, one.shape) for one in read.signature.inputs] == [
        ("s.0", (2, 2)),
        ("s.1", (5,)),
        ("x", (3, 4)),
    ]
    assert [(one.name, one.shape) for one in read.signature.outputs] == [
        ("t.0", (3, 4)),
        ("t.1", (2, 2)),
        ("t.2", (5,)),
    ]
    # The original runtime reads the same tensors.
    assert [one.name for one in onnx.load(read.path).graph.input] == ["s.0", "s.1", "x"]


def test_names_inside_that_are_numbered_alike_give_way(tmp_path: Path) -> None:
    # TorchScript calls the second value of a name `s.1`.
    nodes = [
        number("k", 0),
        helper.make_node("SequenceAt", ["s", "k"], ["s.1"]),
        helper.make_node("Neg", ["s.1"], ["t.0"]),
        helper.make_node("SequenceConstruct", ["t.0", "s.1"], ["t"]),
    ]
    path = of_sequences(tmp_path / "m.onnx", nodes, [helper.make_value_info("s", SEQUENCE)], ["t"])
    read = check(load(path, {"s.0": (2, 3), "s.1": (2, 3)}))
    for case in read.golden:
        np.testing.assert_array_equal(case.outputs[0], -case.inputs[0])
        np.testing.assert_array_equal(case.outputs[1], case.inputs[0])


def test_a_map_over_sequences_is_unrolled(tmp_path: Path) -> None:
    body = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["c"])],
        "body",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("a", "b")],
        [helper.make_tensor_value_info("c", TensorProto.FLOAT, None)],
    )
    nodes = [helper.make_node("SequenceMap", ["s", "x"], ["t"], body=body)]
    inputs = [helper.make_value_info("s", SEQUENCE), value("x", X, [3, 4])]
    path = of_sequences(tmp_path / "m.onnx", nodes, inputs, ["t"])
    read = check(load(path, {"s.0": (3, 4), "s.1": (1, 4)}))
    first, second, x = read.golden[0].inputs
    np.testing.assert_array_equal(read.golden[0].outputs[0], first + x)
    np.testing.assert_array_equal(read.golden[0].outputs[1], second + x)


def test_an_input_without_shapes_says_how_to_give_them(tmp_path: Path) -> None:
    nodes = [helper.make_node("Identity", ["s"], ["t"])]
    path = of_sequences(tmp_path / "m.onnx", nodes, [helper.make_value_info("s", SEQUENCE)], ["t"])
    with pytest.raises(ShapeError, match=r"input 's' is a sequence.*--shape s.0=... --shape s.1=..."):
        load(path)
    # A hole in the numbers is no sequence.
    with pytest.raises(ShapeError, match=r"--shape names 's.2'"):
        load(path, {"s.0": (1,), "s.2": (1,)})


def test_a_length_that_depends_on_an_input_needs_its_value(tmp_path: Path) -> None:
    nodes = [helper.make_node("SplitToSequence", ["x", "size"], ["t"], axis=1)]
    inputs = [value("x", X, [3, 4]), value("size", np.array(2), [])]
    path = of_sequences(tmp_path / "m.onnx", nodes, inputs, ["t"])
    with pytest.raises(
        ImportFailed, match=r"'t' is a sequence whose length depends .* fix them with --value"
    ):
        load(path)
    read = check(load(path, values={"size": [3]}))
    assert [(one.name, one.shape) for one in read.signature.outputs] == [("t.0", (3, 3)), ("t.1", (3, 1))]


def test_a_sequence_of_texts_is_refused(tmp_path: Path) -> None:
    texts = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.STRING, None))
    nodes = [helper.make_node("SequenceLength", ["s"], ["n"])]
    count = helper.make_tensor_value_info("n", TensorProto.INT64, [])
    body = helper.make_graph(nodes, "net", [helper.make_value_info("s", texts)], [count])
    path = written(tmp_path / "m.onnx", helper.make_model(body, ir_version=9))
    with pytest.raises(ImportFailed, match="'s' is a sequence of other things than tensors of numbers"):
        load(path)
