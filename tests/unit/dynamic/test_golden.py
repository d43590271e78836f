"""Golden cases of a range of lengths."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

from host.dynamic import dimension_of
from host.dynamic.source import open_source
from host.engines import run_reference
from host.model import GoldenCase

_LENGTHS = (3, 17)


def _cases(
    path: Path, nodes: list[NodeProto], constants: dict[str, np.ndarray], shape: list[int | str]
) -> tuple[GoldenCase, ...]:
    """Of a model from "x" to "y", of which one dimension is open."""
    tensors = [numpy_helper.from_array(np.asarray(one), name) for name, one in constants.items()]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "rows", [x], [y], tensors)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())
    source = open_source(path)
    with source.worker:
        dimension = dimension_of(source.name, source.inputs, {}, {"n": [(1, 60)]})
        return source.golden(dimension, _LENGTHS, seed=0)


def _scales() -> dict[str, np.ndarray]:
    """Of an input, and of a softmax a little above 1/256."""
    scales = {"xs": np.array(0.02, np.float32), "ys": np.array(0.0041, np.float32)}
    return scales | {"xz": np.array(120, np.uint8), "yz": np.array(0, np.uint8)}


def test_a_quantised_model_has_the_spread_of_its_runtime_at_every_length(tmp_path: Path) -> None:
    """ONNX Runtime gives a quantised softmax another scale where it optimises; all have the widest."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "xs", "xz"], ["d"]),
        helper.make_node("Softmax", ["d"], ["s"]),
        helper.make_node("QuantizeLinear", ["s", "ys", "yz"], ["r"]),
        helper.make_node("DequantizeLinear", ["r", "ys", "yz"], ["y"]),
    ]
    path = tmp_path / "rows.onnx"
    cases = _cases(path, nodes, _scales(), ["n", 24])
    written = run_reference("onnxruntime", path, [case.inputs for case in cases], unoptimised=True)
    distances = []
    for case, (made,), length in zip(cases, written, _LENGTHS, strict=True):
        assert case.inputs[0].shape == (length, 24)
        distances.append(float(np.abs(made - case.outputs[0]).max() / np.abs(case.outputs[0]).max()))
    assert [case.spread for case in cases] == [pytest.approx(max(distances))] * len(cases)
    assert min(distances) > 1e-3


def test_operators_that_round_inside_are_compared_with_real_numbers(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["q"]),
        helper.make_node(
            "QLinearSoftmax",
            ["q", "xs", "xz", "ys", "yz"],
            ["r"],
            domain="com.microsoft",
            axis=-1,
            opset=13,
        ),
        helper.make_node("DequantizeLinear", ["r", "ys", "yz"], ["y"]),
    ]
    cases = _cases(tmp_path / "rows.onnx", nodes, _scales(), ["n", 24])
    assert all(case.spread > 1e-3 for case in cases)


def test_products_of_floats_that_round_inside_are_compared_with_real_numbers(tmp_path: Path) -> None:
    """ONNX Runtime rounds the rows of such a product to bytes, with its optimisations and without."""
    draw = np.random.default_rng(0)
    constants = {
        "w": draw.integers(0, 256, (16, 2, 16), np.uint8),
        "s": draw.uniform(0.01, 0.1, 32).astype(np.float32),
    }
    options = {"K": 64, "N": 16, "bits": 4, "block_size": 32, "accuracy_level": 4}
    nodes = [helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", **options)]
    cases = _cases(tmp_path / "product.onnx", nodes, constants, ["n", 64])
    assert all(case.spread > 1e-3 for case in cases)


def test_a_model_of_floats_has_a_spread_where_it_enlarges_roundings(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    constants = {"w": draw.normal(size=(4, 3, 3)).astype(np.float32), "k": np.array(1e4, np.float32)}
    constants |= {name: draw.uniform(0.5, 1.5, 4).astype(np.float32) for name in "sbmv"}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1]),
        helper.make_node("BatchNormalization", ["c", *"sbmv"], ["n"]),
        helper.make_node("Mul", ["n", "k"], ["l"]),
        helper.make_node("Sin", ["l"], ["y"]),
    ]
    assert all(one.spread > 1e-3 for one in _cases(tmp_path / "sin.onnx", nodes, constants, [1, 3, "n"]))
    stable = [helper.make_node("Softmax", ["x"], ["y"])]
    cases = _cases(tmp_path / "softmax.onnx", stable, {}, ["n", 24])
    assert [one.spread for one in cases] == [0.0, 0.0]
