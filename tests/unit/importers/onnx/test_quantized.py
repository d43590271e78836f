"""Quantised operators, bit by bit as ONNX Runtime computes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper

from host.engines import run_reference
from host.errors import EngineError
from host.importers import load_here as load
from host.importers.half_spread import has_halves, with_rounding_of_halves
from host.importers.onnx import importer
from host.importers.onnx.model_file import read_onnx
from host.model import GoldenCase
from tests.unit.importers.every_type.lowered_models import lowered_as_onnxruntime
from tests.unit.importers.harness import graph, run_model

Arrays = dict[str, np.ndarray]
DRAW = np.random.default_rng(0)
FLOAT, UINT8, INT8, INT32 = TensorProto.FLOAT, TensorProto.UINT8, TensorProto.INT8, TensorProto.INT32


def _bytes(dtype: str, *shape: int) -> np.ndarray:
    limits = np.iinfo(dtype)
    return DRAW.integers(limits.min, limits.max + 1, shape).astype(dtype)


def _seven_bits(*shape: int) -> np.ndarray:
    """Weights whose products ONNX Runtime adds exactly: without VNNI, sums of two saturate in 16 bits."""
    return DRAW.integers(-64, 64, shape).astype("int8")


def same_as_onnxruntime(
    folder: Path,
    node: NodeProto,
    inputs: dict[str, np.ndarray],
    constants: dict[str, np.ndarray],
    *types: int,
) -> list[np.ndarray]:
    """Outputs of one node, which have to be ONNX Runtime's to the last bit."""
    outputs = [helper.make_tensor_value_info(n, t, None) for n, t in zip(node.output, types, strict=True)]
    model = graph([node], inputs, outputs, constants, 21)
    # What is computed at import would be ONNX's own evaluator's work.
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    wanted = session.run(None, inputs)
    for declared, array in zip(model.graph.output, wanted, strict=True):
        declared.type.tensor_type.shape.SetInParent()
        for size in np.asarray(array).shape:
            declared.type.tensor_type.shape.dim.add().dim_value = size
    return run_model(folder / "model.onnx", model, inputs, wanted)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_quantising_rounds_ties_to_even_and_saturates(tmp_path: Path, dtype: str) -> None:
    x = np.array([0.25, 0.75, 1.25, -0.25, -0.75, 1000.0, -1000.0, 3e38], "float32")
    node = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"])
    constants = {"s": np.float32(0.5), "z": np.array(2, dtype)}
    code = UINT8 if dtype == "uint8" else INT8
    (made,) = same_as_onnxruntime(tmp_path, node, {"x": x}, constants, code)
    limits = np.iinfo(dtype)
    assert made.tolist() == [2, 4, 4, 2, 0, limits.max, limits.min, limits.max]


def test_scales_and_zero_points_may_differ_along_an_axis(tmp_path: Path) -> None:
    constants = {"s": DRAW.random(3).astype("float32") + 0.01, "z": np.array([-5, 0, 7], "int8")}
    x = DRAW.normal(size=(2, 3, 4)).astype("float32")
    node = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"], axis=1)
    same_as_onnxruntime(tmp_path, node, {"x": x}, constants, INT8)
    back = helper.make_node("DequantizeLinear", ["x", "s", "z"], ["y"], axis=-2)
    same_as_onnxruntime(tmp_path, back, {"x": _bytes("int8", 2, 3, 4)}, constants, FLOAT)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16"])
def test_halves_are_quantised_in_single_precision(tmp_path: Path, dtype: str) -> None:
    """A quotient of halves lies on a tie, or beyond the largest half, where the exact one does not."""
    scale = np.float16(0.0301 if dtype in ("uint8", "int8") else 2e-4)
    constants = {"s": scale, "z": np.array(np.iinfo(dtype).max // 2, dtype)}
    x = (DRAW.normal(size=4000) * 2).astype("float16")
    code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    node = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"])
    (made,) = same_as_onnxruntime(tmp_path, node, {"x": x}, constants, code)
    back = helper.make_node("DequantizeLinear", ["x", "s", "z"], ["y"])
    same_as_onnxruntime(tmp_path, back, {"x": made}, constants, TensorProto.FLOAT16)


@pytest.mark.parametrize("values", [[-1.5, 0.1, 3.0], [0.0, 0.0, 0.0], [2.0, 3.0, 4.0], [-2.0, -3.0, -1.0]])
def test_dynamic_quantisation_includes_zero(tmp_path: Path, values: list[float]) -> None:
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])
    same_as_onnxruntime(tmp_path, node, {"x": np.array(values, "float32")}, {}, UINT8, FLOAT, UINT8)


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("types", [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")])
def test_integer_matrix_products(tmp_path: Path, types: tuple[str, str], columns: bool) -> None:
    left, right = types
    zero = _bytes(right, 6) if columns else np.array(3, right)
    constants = {"b": _bytes(right, 20, 6), "za": np.array(9, left), "zb": zero}
    node = helper.make_node("MatMulInteger", ["a", "b", "za", "zb"], ["y"])
    # All bits are used, so the products are compared with exact ones.
    a = _bytes(left, 5, 20)
    wanted = (a.astype("int32") - 9) @ (constants["b"].astype("int32") - zero.astype("int32"))
    outputs = [helper.make_tensor_value_info("y", INT32, wanted.shape)]
    run_model(tmp_path / "model.onnx", graph([node], {"a": a}, outputs, constants, 21), {"a": a}, [wanted])


@pytest.mark.parametrize("groups", [1, 2])
def test_integer_convolutions_pad_with_the_zero_point(tmp_path: Path, groups: int) -> None:
    constants = {"w": _bytes("uint8", 6, 4 // groups, 3, 3), "zx": np.uint8(100), "zw": np.uint8(130)}
    node = helper.make_node(
        "ConvInteger", ["x", "w", "zx", "zw"], ["y"], pads=[1, 0, 2, 1], strides=[2, 1], group=groups
    )
    same_as_onnxruntime(tmp_path, node, {"x": _bytes("uint8", 1, 4, 7, 7)}, constants, INT32)


def test_quantised_matrix_products(tmp_path: Path) -> None:
    constants: dict[str, np.ndarray] = {
        "b": _seven_bits(20, 6),
        "ys": np.float32(0.7),
        "yz": np.uint8(110),
    }
    constants |= {"as": np.float32(0.02), "az": np.uint8(90)}
    constants |= {"bs": (DRAW.random(6) * 0.1).astype("float32"), "bz": np.zeros(6, "int8")}
    node = helper.make_node("QLinearMatMul", ["a", "as", "az", "b", "bs", "bz", "ys", "yz"], ["y"])
    same_as_onnxruntime(tmp_path, node, {"a": _bytes("uint8", 5, 20)}, constants, UINT8)


@pytest.mark.parametrize("channels", [1, 8])
def test_quantised_convolutions(tmp_path: Path, channels: int) -> None:
    scale = (DRAW.random(channels) * 0.01 + 0.001).astype("float32").reshape(() if channels == 1 else -1)
    constants = {"w": _seven_bits(8, 4, 3, 3), "ws": scale, "wz": np.zeros(scale.shape, "int8")}
    constants |= {"xs": np.float32(0.03), "xz": np.uint8(77), "ys": np.float32(0.4), "yz": np.uint8(100)}
    constants |= {"b": DRAW.integers(-9000, 9000, 8).astype("int32")}
    names = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"]
    node = helper.make_node("QLinearConv", names, ["y"], auto_pad="SAME_UPPER", strides=[2, 2])
    same_as_onnxruntime(tmp_path, node, {"x": _bytes("uint8", 1, 4, 9, 9)}, constants, UINT8)


def test_the_step_of_a_grid_is_a_quotient(tmp_path: Path) -> None:
    """Numbers of a grid lie half-way between two steps of a quantisation that is found at run time.

    A step that is multiplied by a reciprocal, one unit off, puts them to the other side.
    """
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "y_scale", "y_zero"])
    for most, step in ((2, 0.1), (4, 0.02), (56, 0.0299)):
        x = np.arange(most + 1, dtype="float32") * np.float32(step)
        lowered_as_onnxruntime(tmp_path / "model.onnx", [node], {"x": x})


def test_models_of_indices_have_the_spread_of_their_weights(tmp_path: Path) -> None:
    """Sums between two steps, in a model without real inputs whose engine rounds alike in both ways."""
    table = np.tile(np.array([255.0, *np.arange(63) + 0.5], np.float32), (9, 1))
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["x"]),
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    outputs = [helper.make_tensor_value_info("y", FLOAT, (4, 64))]
    model = graph(nodes, {"ids": np.zeros(4, np.int64)}, outputs, {"table": table})
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    found = load(path, golden_cases=2)
    assert all(0.9 / 255 < case.spread < 2.1 / 255 for case in found.golden)


def _of_positions(kinds: list[NodeProto], inputs: Arrays, constants: Arrays, path: Path) -> Path:
    """A quantised model that takes rows of a table, of which each differs from the one before."""
    nodes = [
        *kinds,
        helper.make_node("Gather", ["table", "rows"], ["x"]),
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    table = DRAW.normal(size=(128, 64)).astype(np.float32)
    outputs = [helper.make_tensor_value_info("y", FLOAT, (4, 64))]
    constants = {**constants, "table": table, "s": np.float32(0.05), "z": np.int8(0)}
    path.write_bytes(graph(nodes, inputs, outputs, constants).SerializeToString())
    return path


def test_positions_in_floats_are_not_moved(tmp_path: Path) -> None:
    """By a rounding less they are others: everything up to the largest spread passed."""
    cast = helper.make_node("Cast", ["p"], ["rows"], to=TensorProto.INT64)
    x = np.array([1, 3, 5, 8], np.float32)
    path = _of_positions([cast], {"p": x}, {}, tmp_path / "inputs.onnx")
    assert [case.spread for case in load(path, samples=[[x]]).golden] == [0]
    nodes = [helper.make_node("Gather", ["positions", "ids"], ["p"]), cast]
    constants = {"positions": np.arange(128, dtype=np.float32)}
    path = _of_positions(nodes, {"ids": np.zeros(4, np.int64)}, constants, tmp_path / "weights.onnx")
    assert {case.spread for case in load(path, golden_cases=2).golden} == {0}


def test_what_the_runtime_refuses_with_moved_weights_is_imported(tmp_path: Path) -> None:
    """Numbers of 16 bits before version 21 of the standard, which its own operators have."""
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["x"]),
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], domain="com.microsoft"),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], domain="com.microsoft"),
    ]
    outputs = [helper.make_tensor_value_info("y", FLOAT, (4, 64))]
    table = DRAW.normal(size=(9, 64)).astype(np.float32)
    constants = {"table": table, "s": np.float32(1e-3), "z": np.int16(0)}
    model = graph(nodes, {"ids": np.zeros(4, np.int64)}, outputs, constants, 13)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    assert load(path, golden_cases=2).module is not None


def test_what_the_runtime_refuses_when_it_has_fused_it_is_run_unfused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A product of two activations, of which the second has a zero point for each column."""
    moved: list[ModelProto] = []
    monkeypatch.setattr(importer, "_moved", lambda model: moved.append(model) or model)
    steps = {"s": np.float32(0.05), "z": np.uint8(128), "many": np.full(4, 0.04, np.float32)}
    constants = {**steps, "zeros": np.arange(126, 130, dtype=np.uint8)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["a"]),
        helper.make_node("DequantizeLinear", ["a", "s", "z"], ["b"]),
        helper.make_node("QuantizeLinear", ["y", "many", "zeros"], ["c"], axis=2),
        helper.make_node("DequantizeLinear", ["c", "many", "zeros"], ["d"], axis=2),
        helper.make_node("MatMul", ["b", "d"], ["e"]),
        helper.make_node("QuantizeLinear", ["e", "s", "z"], ["f"]),
        helper.make_node("DequantizeLinear", ["f", "s", "z"], ["out"]),
    ]
    inputs = {"x": np.zeros((2, 5, 8), np.float32), "y": np.zeros((2, 8, 4), np.float32)}
    outputs = [helper.make_tensor_value_info("out", FLOAT, (2, 5, 4))]
    path = tmp_path / "m.onnx"
    path.write_bytes(graph(nodes, inputs, outputs, constants).SerializeToString())
    arrays = [[DRAW.normal(size=one.shape).astype(np.float32) for one in inputs.values()]]
    with pytest.raises(EngineError, match="QLinearMatMul"):
        run_reference("onnxruntime", path, arrays)
    found = load(path, samples=arrays)
    assert found.module is not None and len(moved) == 1
    wanted = run_reference("onnxruntime", path, arrays, unoptimised=True)
    np.testing.assert_array_equal(found.golden[0].outputs[0], wanted[0][0])


def _in_halves(offset: float, path: Path) -> Path:
    nodes = [
        helper.make_node("Add", ["x", "c"], ["s"]),
        helper.make_node("Sub", ["s", "c"], ["y"]),
        helper.make_node("ArgMax", ["y"], ["z"], axis=1, keepdims=0),
    ]
    outputs = [
        helper.make_tensor_value_info("y", TensorProto.FLOAT16, (4, 64)),
        helper.make_tensor_value_info("z", TensorProto.INT64, (4,)),
    ]
    inputs = {"x": np.zeros((4, 64), np.float16)}
    path.write_bytes(graph(nodes, inputs, outputs, {"c": np.float16(offset)}).SerializeToString())
    return path


@pytest.mark.parametrize(("offset", "least", "most", "share"), [(2048, 0.1, 1, 1), (0.5, 0, 2e-3, 0)])
def test_files_in_halves_have_the_spread_of_their_rounding(
    offset: float, least: float, most: float, share: float, tmp_path: Path
) -> None:
    """An engine that rounds alike in both of its ways shows nothing of it; single precision does."""
    file = read_onnx(_in_halves(offset, tmp_path / "m.onnx"))
    assert has_halves(file.model, file.weights)
    x = np.random.default_rng(1).normal(size=(4, 64)).astype(np.float16)
    y = (x + np.float16(offset)) - np.float16(offset)
    (found,) = with_rounding_of_halves([GoldenCase((x,), (y, y.argmax(axis=1)))], file.model)
    assert least <= found.spread <= most
    assert found.shares == (None, share) if share == 0 else found.shares[1]


def test_files_in_halves_are_imported_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def noted(golden: Sequence[GoldenCase], model: ModelProto) -> tuple[GoldenCase, ...]:
        return tuple(replace(case, spread=0.5, shares=(None, 0.0)) for case in golden)

    monkeypatch.setattr(importer, "with_rounding_of_halves", noted)
    path = _in_halves(0.5, tmp_path / "m.onnx")
    assert {case.spread for case in load(path, golden_cases=1).golden} == {0.5}
    monkeypatch.setattr(importer, "_MOST_IN_SINGLE", -1)
    assert {case.spread for case in load(path, golden_cases=1).golden} == {0.0}, "too many weights"


def test_infinite_scales_are_refused(tmp_path: Path) -> None:
    """As calibration makes them of masks; every engine makes other numbers of them."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    outputs = [helper.make_tensor_value_info("y", FLOAT, (4, 64))]
    constants = {"s": np.float32(np.inf), "z": np.uint8(0)}
    path = tmp_path / "m.onnx"
    path.write_bytes(
        graph(nodes, {"x": np.zeros((4, 64), np.float32)}, outputs, constants).SerializeToString()
    )
    model = load(path, golden_cases=1)
    assert model.module is None and "a scale is infinite" in str(model.reason)
