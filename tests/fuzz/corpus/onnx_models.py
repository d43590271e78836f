"""ONNX models, small ones of many kinds and those that did harm once."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.fuzz.case import Case
from tests.integration import small_models
from tests.unit.importers.hostile import HOSTILE

_F, _I, _B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
MODEL = "model.onnx"


@functools.cache
def seeds() -> tuple[onnx.ModelProto, ...]:
    """Valid models, weights in the file."""
    made = [_from(write) for write in (small_models.convnet, small_models.embedding)]
    made += [_from(write) for write in (small_models.uncompiled_operator, small_models.unknown_operator)]
    return (*made, _branch(), _loop(), _function(), _quantized(), _shapes(), _scan())


def external() -> Case:
    """A model whose weight lies in another file."""
    model = _model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": np.eye(4, dtype=np.float32)})
    tensor = model.graph.initializer[0]
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": "weights.bin", "offset": "16", "length": "64"}.items():
        tensor.external_data.add(key=key, value=value)
    tensor.ClearField("raw_data")
    return Case("external", {MODEL: model.SerializeToString(), "weights.bin": bytes(range(80))})


@functools.cache
def cases() -> tuple[Case, ...]:
    """Everything that was a fault once."""
    return tuple(_case(name, write) for name, (write, _) in HOSTILE.items())


def _case(name: str, write: Callable[[Path], object]) -> Case:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder, MODEL))
        return Case.read(Path(folder), first=MODEL, name="onnx-" + name.replace(" ", "-").replace("^", ""))


def _from(write: Callable[[Path], object]) -> onnx.ModelProto:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, MODEL)
        write(path)
        return onnx.load(path)


def _model(
    nodes: list[onnx.NodeProto],
    weights: dict[str, np.ndarray] | None = None,
    shape: tuple[int, ...] = (2, 4),
    functions: tuple[onnx.FunctionProto, ...] = (),
    kinds: tuple[int, int] = (_F, _F),
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", kinds[0], shape)],
        [onnx.ValueInfoProto(name="y", type=helper.make_tensor_type_proto(kinds[1], None))],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, functions=functions, opset_imports=opsets, ir_version=10)


def _branch() -> onnx.ModelProto:
    def side(operator: str) -> onnx.GraphProto:
        node = helper.make_node(operator, ["x"], ["z"])
        return helper.make_graph([node], operator, [], [helper.make_tensor_value_info("z", _F, (2, 4))])

    node = helper.make_node("If", ["c"], ["y"], then_branch=side("Neg"), else_branch=side("Abs"))
    return _model([node], {"c": np.array(True)})


def _loop() -> onnx.ModelProto:
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Add", ["v", "v"], ["w"])],
        "body",
        [
            helper.make_tensor_value_info("turn", _I, ()),
            helper.make_tensor_value_info("go", _B, ()),
            helper.make_tensor_value_info("v", _F, (2, 4)),
        ],
        [helper.make_tensor_value_info("on", _B, ()), helper.make_tensor_value_info("w", _F, (2, 4))],
    )
    return _model([helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)], {"n": np.array(3)})


def _scan() -> onnx.ModelProto:
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "e"], ["t"]), helper.make_node("Neg", ["t"], ["u"])],
        "body",
        [helper.make_tensor_value_info(name, _F, (4,)) for name in "se"],
        [helper.make_tensor_value_info(name, _F, (4,)) for name in "tu"],
    )
    node = helper.make_node("Scan", ["zero", "x"], ["last", "y"], body=body, num_scan_inputs=1)
    return _model([node], {"zero": np.zeros(4, np.float32)})


def _function() -> onnx.ModelProto:
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    inner = helper.make_function("own", "g", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])], opsets)
    calls = [helper.make_node("g", ["a"], ["b"], domain="own"), helper.make_node("Neg", ["b"], ["c"])]
    outer = helper.make_function("own", "f", ["a"], ["c"], calls, opsets)
    return _model([helper.make_node("f", ["x"], ["y"], domain="own")], functions=(outer, inner))


def _quantized() -> onnx.ModelProto:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("Clip", ["d", "low", "high"], ["y"]),
    ]
    scalars = {"s": np.float32(0.1), "z": np.uint8(3), "low": np.float32(-1), "high": np.float32(1)}
    return _model(nodes, {name: np.array(value) for name, value in scalars.items()})


def _shapes() -> onnx.ModelProto:
    """Operators whose attributes and small inputs decide shapes."""
    nodes = [
        helper.make_node("Reshape", ["x", "to"], ["a"]),
        helper.make_node("Transpose", ["a"], ["b"], perm=[1, 0, 2]),
        helper.make_node("Slice", ["b", "from", "until", "axes"], ["c"]),
        helper.make_node("Pad", ["c", "pads"], ["d"], mode="constant"),
        helper.make_node("Concat", ["d", "d"], ["e"], axis=-1),
        helper.make_node("Expand", ["e", "wide"], ["f"]),
        helper.make_node("Gather", ["f", "which"], ["h"], axis=0),
        helper.make_node("Split", ["h"], ["i", "j"], axis=2, num_outputs=2),
        helper.make_node("Sub", ["i", "j"], ["k"]),
        helper.make_node("ReduceMean", ["k", "axes"], ["l"], keepdims=1),
        helper.make_node("TopK", ["l", "k1"], ["y", "places"], axis=2),
    ]
    numbers = {
        "to": [2, 2, 2],
        "from": [0],
        "until": [2],
        "axes": [1],
        "pads": [0, 0, 0, 0, 0, 2],
        "wide": [2, 2, 8],
        "which": [1, 0, 1],
        "k1": [2],
    }
    return _model(nodes, {name: np.array(values) for name, values in numbers.items()})
