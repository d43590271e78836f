"""Models small enough to deploy within a second or two, made without torch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 18


def save(
    path: Path,
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    weights: dict[str, np.ndarray] | None = None,
    opset: int = OPSET,
    domains: tuple[str, ...] = (),
) -> Path:
    """Write an ONNX file."""
    initializers = [numpy_helper.from_array(value, name) for name, value in (weights or {}).items()]
    graph = helper.make_graph(nodes, "small", inputs, outputs, initializers)
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    path.write_bytes(model.SerializeToString())
    return path


def floats(name: str, *shape: int | str) -> onnx.ValueInfoProto:
    """A float32 input or output."""
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def convnet(path: Path, seed: int = 0, batch: int | str = 1) -> Path:
    """Convolution, BatchNorm, ReLU, pooling and a classifier on 1x3x16x16."""
    draw = np.random.default_rng(seed)
    weights = {
        "w": draw.normal(size=(16, 3, 3, 3)).astype(np.float32),
        "gamma": draw.uniform(0.5, 2, 16).astype(np.float32),
        "beta": draw.normal(size=16).astype(np.float32),
        "mean": draw.normal(size=16).astype(np.float32),
        "variance": draw.uniform(0.5, 2, 16).astype(np.float32),
        "dense": draw.normal(size=(16, 10)).astype(np.float32),
        "bias": draw.normal(size=10).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["image", "w"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("BatchNormalization", ["c", "gamma", "beta", "mean", "variance"], ["n"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "dense", "bias"], ["scores"]),
    ]
    return save(path, nodes, [floats("image", batch, 3, 16, 16)], [floats("scores", batch, 10)], weights)


def embedding(path: Path) -> Path:
    """Integer tokens and an input that nothing uses; two outputs, one of them integer."""
    draw = np.random.default_rng(1)
    weights = {
        "table": draw.normal(size=(50, 8)).astype(np.float32),
        "matrix": draw.normal(size=(8, 6)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Gather", ["table", "tokens"], ["e"]),
        helper.make_node("MatMul", ["e", "matrix"], ["m"]),
        helper.make_node("Softmax", ["m"], ["probabilities"]),
        helper.make_node("ArgMax", ["m"], ["label"], axis=-1, keepdims=0),
    ]
    inputs = [
        helper.make_tensor_value_info("tokens", TensorProto.INT64, (1, 12)),
        floats("unused", 1, 4),
    ]
    outputs = [
        floats("probabilities", 1, 12, 6),
        helper.make_tensor_value_info("label", TensorProto.INT64, (1, 12)),
    ]
    return save(path, nodes, inputs, outputs, weights)


def with_nan(path: Path) -> Path:
    """A weight that is not a number."""
    weights = {"w": np.array([[1.0, np.nan], [2.0, 3.0]], np.float32)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    return save(path, nodes, [floats("x", 1, 2)], [floats("y", 1, 2)], weights)


def unknown_operator(path: Path) -> Path:
    """An operator of a domain that no engine knows."""
    nodes = [helper.make_node("Frobnicate", ["x"], ["y"], domain="com.example")]
    return save(path, nodes, [floats("x", 1, 2)], [floats("y", 1, 2)], domains=("com.example",))


def uncompiled_operator(path: Path) -> Path:
    """An operator that ONNX Runtime has and no compiler: how large its result is depends on values."""
    nodes = [
        helper.make_node("NonZero", ["x"], ["places"]),
        helper.make_node("Shape", ["places"], ["shape"]),
        helper.make_node("Cast", ["shape"], ["y"], to=TensorProto.FLOAT),
    ]
    return save(path, nodes, [floats("x", 8)], [floats("y", 2)])
