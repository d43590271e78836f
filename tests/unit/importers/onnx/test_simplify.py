"""Constant folding, inlining and unrolling of ONNX graphs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from host.importers import load_here as load
from host.importers.onnx.graph_order import sort_nodes
from host.importers.onnx.model_file import read_onnx
from host.importers.onnx.operators import supported_operators
from host.importers.onnx.simplify import simplify
from tests.unit.importers.harness import check, graph, run_model, value

X = np.zeros((2, 3, 4), np.float32)


def simplified(path: Path, model: onnx.ModelProto) -> onnx.ModelProto:
    path.write_bytes(model.SerializeToString())
    file = read_onnx(path)
    shapes = {entry.name: tuple(int(size) for size in entry.dimensions or ()) for entry in file.inputs}
    return simplify(file, shapes, supported_operators())


def operators(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def test_a_shape_computed_in_the_graph_becomes_a_constant(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["batch"]),
        helper.make_node("Unsqueeze", ["batch", "axes"], ["first"]),
        helper.make_node("Concat", ["first", "rest"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["y"]),
    ]
    constants = {"zero": np.array(0), "axes": np.array([0]), "rest": np.array([-1])}
    model = simplified(
        tmp_path / "m.onnx", graph(nodes, {"x": X}, [value("y", np.zeros((2, 12), np.float32))], constants)
    )
    assert operators(model) == ["Reshape"]
    (target,) = (tensor for tensor in model.graph.initializer if tensor.name == "target")
    assert numpy_helper.to_array(target).tolist() == [2, -1]


def test_large_weights_are_not_folded_and_nothing_grows(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]),
        helper.make_node("ConstantOfShape", ["big"], ["zeros"]),
        helper.make_node("MatMul", ["x", "t"], ["m"]),
        helper.make_node("ReduceSum", ["zeros"], ["s"], keepdims=0),
        helper.make_node("Add", ["m", "s"], ["y"]),
    ]
    constants = {"w": np.ones((300, 300), np.float32), "big": np.array([2000, 2000])}
    x = np.zeros((1, 300), np.float32)
    model = simplified(tmp_path / "m.onnx", graph(nodes, {"x": x}, [value("y", x)], constants))
    assert operators(model) == ["Transpose", "ConstantOfShape", "MatMul", "ReduceSum", "Add"]
    assert model.ByteSize() < 5_000


def test_random_numbers_are_not_folded(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("RandomNormal", [], ["noise"], shape=[3]),
        helper.make_node("Add", ["x", "noise"], ["y"]),
    ]
    x = np.zeros(3, np.float32)
    model = simplified(tmp_path / "m.onnx", graph(nodes, {"x": x}, [value("y", x)]))
    assert "RandomNormal" in operators(model)


def test_a_function_body_takes_the_place_of_an_operator_without_conversion(tmp_path: Path) -> None:
    x = np.zeros((2, 3), np.float32)
    node = helper.make_node("Celu", ["x"], ["y"], alpha=2.0)
    model = simplified(tmp_path / "m.onnx", graph([node], {"x": x}, [value("y", x)]))
    assert "Celu" not in supported_operators()
    assert "Celu" not in operators(model) and "Elu" in operators(model)
    check(load(tmp_path / "m.onnx"))


def test_local_functions_are_inlined(tmp_path: Path) -> None:
    body = helper.make_function(
        "local",
        "Twice",
        ["a"],
        ["b"],
        [helper.make_node("Add", ["a", "a"], ["b"])],
        [helper.make_opsetid("", 18)],
    )
    x = np.zeros(3, np.float32)
    model = graph([helper.make_node("Twice", ["x"], ["y"], domain="local")], {"x": x}, [value("y", x)])
    model.functions.append(body)
    model.opset_import.append(helper.make_opsetid("local", 1))
    assert operators(simplified(tmp_path / "m.onnx", model)) == ["Add"]


def _branch(name: str, operator: str) -> onnx.GraphProto:
    out = helper.make_tensor_value_info("r", TensorProto.FLOAT, (3,))
    return helper.make_graph([helper.make_node(operator, ["x"], ["r"])], name, [], [out])


@pytest.mark.parametrize(("condition", "operator"), [(True, "Exp"), (False, "Neg")])
def test_a_branch_that_is_always_taken(tmp_path: Path, condition: bool, operator: str) -> None:
    node = helper.make_node(
        "If", ["c"], ["y"], then_branch=_branch("a", "Exp"), else_branch=_branch("b", "Neg")
    )
    x = np.zeros(3, np.float32)
    model = graph([node], {"x": x}, [value("y", x)], {"c": np.array(condition)})
    made = operators(simplified(tmp_path / "m.onnx", model))
    assert operator in made and "If" not in made and len({"Exp", "Neg"} & set(made)) == 1


def test_a_branch_on_an_input_is_a_choice(tmp_path: Path) -> None:
    node = helper.make_node(
        "If", ["c"], ["y"], then_branch=_branch("a", "Exp"), else_branch=_branch("b", "Neg")
    )
    x = np.zeros(3, np.float32)
    path = tmp_path / "m.onnx"
    path.write_bytes(graph([node], {"x": x, "c": np.array(True)}, [value("y", x)]).SerializeToString())
    x = np.array([1.0, 2, 3], np.float32)
    check(load(path, samples=[[x, np.array(True)], [x, np.array(False)]]))


def _loop(condition: str) -> onnx.NodeProto:
    nodes = [
        helper.make_node("Add", ["s", "x"], ["s2"]),
        helper.make_node("Identity", ["s2"], ["row"]),
        helper.make_node(condition, ["go"], ["go2"]),
    ]
    scalar = [
        helper.make_tensor_value_info(n, t, ())
        for n, t in (("i", TensorProto.INT64), ("go", TensorProto.BOOL))
    ]
    state = helper.make_tensor_value_info("s", TensorProto.FLOAT, (3,))
    outputs = [
        helper.make_tensor_value_info("go2", TensorProto.BOOL, ()),
        helper.make_tensor_value_info("s2", TensorProto.FLOAT, (3,)),
        helper.make_tensor_value_info("row", TensorProto.FLOAT, (3,)),
    ]
    body = helper.make_graph(nodes, "body", [*scalar, state], outputs)
    return helper.make_node("Loop", ["count", "", "start"], ["last", "rows"], body=body)


def _loop_model(condition: str) -> onnx.ModelProto:
    x = np.zeros(3, np.float32)
    outputs = [value("last", x), value("rows", np.zeros((4, 3), np.float32))]
    constants = {"count": np.array(4), "start": np.ones(3, np.float32)}
    return graph([_loop(condition)], {"x": x}, outputs, constants)


def test_a_loop_of_known_length_is_unrolled(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    assert "Loop" not in operators(simplified(path, _loop_model("Identity")))
    check(load(path))


def test_a_declared_output_gives_the_number_of_turns(tmp_path: Path) -> None:
    model = _loop_model("Identity")
    count = next(tensor for tensor in model.graph.initializer if tensor.name == "count")
    model.graph.initializer.remove(count)
    model.graph.input.append(value("count", np.array(4)))
    path = tmp_path / "m.onnx"
    assert "Loop" not in operators(simplified(path, model))
    x = np.array([1.0, 2, 3], np.float32)
    check(load(path, samples=[[x, np.array(4)]]))


def test_a_loop_that_may_stop_early_stays(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(_loop_model("Not").SerializeToString())
    model = load(
        path, reference=lambda engine, file, cases: [[c[0], np.zeros((4, 3), np.float32)] for c in cases]
    )
    assert model.module is None and model.operator == "Loop"


def test_a_scan_is_unrolled(tmp_path: Path) -> None:
    state = helper.make_tensor_value_info("s", TensorProto.FLOAT, (2,))
    row = helper.make_tensor_value_info("r", TensorProto.FLOAT, (2,))
    nodes = [helper.make_node("Add", ["s", "r"], ["s2"]), helper.make_node("Mul", ["s2", "r"], ["o"])]
    outs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (2,)) for n in ("s2", "o")]
    body = helper.make_graph(nodes, "body", [state, row], outs)
    node = helper.make_node(
        "Scan", ["start", "x"], ["last", "rows"], body=body, num_scan_inputs=1, scan_input_directions=[1]
    )
    inputs = {"start": np.zeros(2, np.float32), "x": np.zeros((5, 2), np.float32)}
    path = tmp_path / "m.onnx"
    outputs = [value("last", inputs["start"]), value("rows", inputs["x"])]
    path.write_bytes(graph([node], inputs, outputs).SerializeToString())
    check(load(path))


@pytest.mark.parametrize("keepdims", [0, 1])
def test_a_declared_output_gives_the_shape_before_operators_that_keep_it(
    tmp_path: Path, keepdims: int
) -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    axes = np.array([-2])
    nodes = [
        helper.make_node("ReduceSum", ["x", "axes"], ["sums"], keepdims=keepdims),
        helper.make_node("Sqrt", ["sums"], ["roots"]),
        helper.make_node("CastLike", ["roots", "x"], ["y"]),
    ]
    wanted = np.sqrt(x.sum(1, keepdims=bool(keepdims)))
    model = graph(nodes, {"x": x, "axes": axes}, [value("y", wanted)])
    run_model(tmp_path / "m.onnx", model, {"x": x, "axes": axes}, [wanted], relative=1e-5)


def test_a_broadcast_tells_nothing_of_what_is_before_it(tmp_path: Path) -> None:
    x, axes = np.ones((2, 3), np.float32), np.array([0])
    nodes = [
        helper.make_node("ReduceSum", ["x", "axes"], ["sums"], keepdims=1),
        helper.make_node("Add", ["sums", "x"], ["y"]),
    ]
    path = tmp_path / "m.onnx"
    path.write_bytes(graph(nodes, {"x": x, "axes": axes}, [value("y", x)]).SerializeToString())
    model = load(path, samples=[[x, axes]], reference=lambda engine, file, given: [[x]])
    assert model.module is None
    assert "the shape of its output depends on the model's inputs" in model.reason


@pytest.mark.parametrize("direction", [0, 1])
def test_a_scan_of_version_8_goes_over_each_element_of_a_batch(tmp_path: Path, direction: int) -> None:
    state = helper.make_tensor_value_info("s", TensorProto.FLOAT, (2,))
    row = helper.make_tensor_value_info("r", TensorProto.FLOAT, (2,))
    nodes = [helper.make_node("Add", ["s", "r"], ["s2"]), helper.make_node("Mul", ["s2", "r"], ["o"])]
    outs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (2,)) for n in ("s2", "o")]
    body = helper.make_graph(nodes, "body", [state, row], outs)
    node = helper.make_node(
        "Scan", ["", "start", "x"], ["last", "rows"], body=body, num_scan_inputs=1, directions=[direction]
    )
    inputs = {"start": np.zeros((3, 2), np.float32), "x": np.zeros((3, 4, 2), np.float32)}
    path = tmp_path / "m.onnx"
    outputs = [value("last", inputs["start"]), value("rows", inputs["x"])]
    path.write_bytes(graph([node], inputs, outputs, opset=8).SerializeToString())
    check(load(path))


def _chain(operators: list[str]) -> onnx.GraphProto:
    nodes = [helper.make_node(kind, [f"v{i}"], [f"v{i + 1}"], kind) for i, kind in enumerate(operators)]
    return helper.make_graph(nodes, "chain", [], [])


def test_nodes_before_what_they_read_are_converted(tmp_path: Path) -> None:
    """As tools write them that put what they add at the end; ONNX Runtime takes such files."""
    x = np.linspace(-2, 2, 6, dtype=np.float32)
    nodes = [
        helper.make_node("Add", ["a", "b"], ["y"]),
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node("Abs", ["a"], ["b"]),
    ]
    model = graph(nodes, {"x": x}, [value("y", x)])
    run_model(tmp_path / "m.onnx", model, {"x": x}, [-x + np.abs(x)], absolute=1e-6)


def test_nodes_in_order_stay() -> None:
    chain = _chain(["Neg", "Abs", "Exp"])
    before = chain.SerializeToString()
    sort_nodes(chain)
    assert chain.SerializeToString() == before


def test_long_chains_in_reverse() -> None:
    chain = _chain([f"op{i}" for i in range(5000)])
    nodes = list(chain.node)[::-1]
    del chain.node[:]
    chain.node.extend(nodes)
    sort_nodes(chain)
    assert [node.op_type for node in chain.node] == [f"op{i}" for i in range(5000)]


def test_nodes_behind_what_their_branches_read() -> None:
    then, other = (
        helper.make_graph([helper.make_node("Neg", ["late"], [name])], name, [], []) for name in "ab"
    )
    branch = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    made = helper.make_graph([branch, helper.make_node("Abs", ["x"], ["late"])], "g", [], [])
    sort_nodes(made)
    assert [node.op_type for node in made.node] == ["Abs", "If"]


def test_circles_end() -> None:
    nodes = [helper.make_node("Add", ["a", "b"], ["c"]), helper.make_node("Neg", ["c"], ["a"])]
    made = helper.make_graph(nodes, "g", [], [])
    sort_nodes(made)
    assert sorted(node.op_type for node in made.node) == ["Add", "Neg"]
