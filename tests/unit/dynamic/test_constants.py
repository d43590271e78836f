"""Constants that depend on the length, from the file of a model on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from host.dynamic import dimension_of
from host.dynamic.model import SymbolicModel, lower_over
from host.dynamic.source import open_source
from host.errors import LoweringError
from tests.unit.lowering.harness import board

_ROW = np.arange(8, dtype=np.float32) + 1


def _over(path: Path, operator: str, other: str) -> SymbolicModel:
    """A model for 1 to 60 rows of an operator on one row, repeated to as many, and another value."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Expand", ["row", "shape"], ["rows"]),
        helper.make_node(operator, ["rows", other], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 8])
    row = numpy_helper.from_array(_ROW, "row")
    return _lowered(path, helper.make_graph(nodes, "g", [x], [y], [row]))


def _lowered(path: Path, graph: onnx.GraphProto) -> SymbolicModel:
    """A graph for 1 to 60 rows."""
    opsets = [helper.make_opsetid("", 18)]
    path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())
    source = open_source(path)
    with source.worker:
        dimension = dimension_of(source.name, source.inputs, {}, {"n": [(1, 60)]})
        return lower_over(source, dimension, board(), lambda done, total: None)


def test_constants_are_those_of_the_greatest_length(tmp_path: Path) -> None:
    model = _over(tmp_path / "m.onnx", "Div", "x")
    assert [one.shape for one in model.parameters] == [(60, 8)]
    np.testing.assert_array_equal(model.parameters[0], np.tile(_ROW, (60, 1)))


def test_outputs_of_the_length_alone_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LoweringError, match="depends on the length alone"):
        _over(tmp_path / "m.onnx", "Sub", "row")


def test_constants_that_are_equal_at_short_lengths_alone(tmp_path: Path) -> None:
    """As the masks of two windows are, up to the length of the smaller one."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Expand", ["one", "shape"], ["ones"]),
        helper.make_node("CumSum", ["ones", "axis"], ["places"]),
        helper.make_node("Min", ["places", "window"], ["near"]),
        helper.make_node("Mul", ["x", "near"], ["a"]),
        helper.make_node("Tanh", ["a"], ["b"]),
        helper.make_node("Mul", ["b", "places"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 8])
    constants = [
        numpy_helper.from_array(np.ones((1, 8), np.float32), "one"),
        numpy_helper.from_array(np.array(0), "axis"),
        numpy_helper.from_array(np.array(59, np.float32), "window"),
    ]
    model = _lowered(tmp_path / "m.onnx", helper.make_graph(nodes, "g", [x], [y], constants))
    rows = np.arange(1, 61, dtype=np.float32)[:, None].repeat(8, 1)
    found = sorted(model.parameters, key=lambda one: float(one.max()))
    for one, wanted in zip(found, (np.minimum(rows, 59), rows), strict=True):
        np.testing.assert_array_equal(one, wanted)
