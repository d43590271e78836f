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


def convnet(path: Path, seed: int = 0, batch: int | str = 1, size: int = 16) -> Path:
    """Convolution, BatchNorm, ReLU, pooling and a classifier on images of 3 channels and a size."""
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
    return save(path, nodes, [floats("image", batch, 3, size, size)], [floats("scores", batch, 10)], weights)


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


def encoder(path: Path, hidden: int = 32, heads: int = 2, symbol: int | str = "seq") -> Path:
    """One encoder layer over tokens and a mask, both of an open length; two outputs."""
    draw = np.random.default_rng(2)

    def weight(*shape: int) -> np.ndarray:
        return (draw.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32)

    weights = {
        "table": draw.normal(size=(50, hidden)).astype(np.float32),
        **{name: weight(hidden, hidden) for name in ("wq", "wk", "wv", "wo")},
        "bias": weight(hidden),
        "wide": weight(hidden, 4 * hidden),
        "narrow": weight(4 * hidden, hidden),
        "gamma": draw.uniform(0.5, 2, hidden).astype(np.float32),
        "beta": weight(hidden),
        "split": np.array([1, -1, heads, hidden // heads], np.int64),
        "joined": np.array([1, -1, hidden], np.int64),
        "low": np.array(-1e4, np.float32),
        "one": np.array(1.0, np.float32),
        "axes": np.array([1, 2], np.int64),
    }
    nodes = [helper.make_node("Gather", ["table", "tokens"], ["x"])]
    for name in "qkv":
        nodes += [
            helper.make_node("MatMul", ["x", f"w{name}"], [f"{name}0"]),
            helper.make_node("Reshape", [f"{name}0", "split"], [f"{name}1"]),
            helper.make_node(
                "Transpose", [f"{name}1"], [name], perm=[0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]
            ),
        ]
    nodes += [
        helper.make_node("Cast", ["mask"], ["m0"], to=TensorProto.FLOAT),
        helper.make_node("Sub", ["one", "m0"], ["m1"]),
        helper.make_node("Mul", ["m1", "low"], ["m2"]),
        helper.make_node("Unsqueeze", ["m2", "axes"], ["m3"]),
        helper.make_node("MatMul", ["q", "k"], ["s0"]),
        helper.make_node("Add", ["s0", "m3"], ["s1"]),
        helper.make_node("Softmax", ["s1"], ["s2"], axis=-1),
        helper.make_node("MatMul", ["s2", "v"], ["a0"]),
        helper.make_node("Transpose", ["a0"], ["a1"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["a1", "joined"], ["a2"]),
        helper.make_node("MatMul", ["a2", "wo"], ["a3"]),
        helper.make_node("Add", ["a3", "bias"], ["a4"]),
        helper.make_node("Add", ["a4", "x"], ["r"]),
        helper.make_node("LayerNormalization", ["r", "gamma", "beta"], ["n"], axis=-1),
        helper.make_node("MatMul", ["n", "wide"], ["f0"]),
        helper.make_node("Relu", ["f0"], ["f1"]),
        helper.make_node("MatMul", ["f1", "narrow"], ["hidden"]),
        helper.make_node("ReduceMean", ["hidden", "axis"], ["pooled"], keepdims=0),
    ]
    weights["axis"] = np.array([1], np.int64)
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, (1, symbol)) for name in ("tokens", "mask")
    ]
    outputs = [floats("hidden", 1, symbol, hidden), floats("pooled", 1, hidden)]
    return save(path, nodes, inputs, outputs, weights)


def wide_image(path: Path) -> Path:
    """Two strided convolutions of an image of open width, gated by the mean of the result; two outputs."""
    draw = np.random.default_rng(4)
    weights = {
        "a": draw.normal(size=(8, 3, 3, 3)).astype(np.float32) / 5,
        "b": draw.normal(size=(16, 8, 3, 3)).astype(np.float32) / 8,
    }
    nodes = [
        helper.make_node("Conv", ["image", "a"], ["c0"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c0"], ["c1"]),
        helper.make_node("Conv", ["c1", "b"], ["c2"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["c2"], ["mean"]),
        helper.make_node("Sigmoid", ["mean"], ["gate"]),
        helper.make_node("Mul", ["c2", "gate"], ["map"]),
    ]
    outputs = [floats("map", 1, 16, 7, "columns"), floats("mean", 1, 16, 1, 1)]
    return save(path, nodes, [floats("image", 1, 3, 28, "width")], outputs, weights)


def doubled(path: Path, operator: str = "Mul", name: str = "x") -> Path:
    """A model of one node, with one input that has a value in the file."""
    nodes = [helper.make_node(operator, [name, "two"], ["y"])]
    weights = {"two": np.array([2.0], dtype="float32")}
    return save(path, nodes, [floats(name, 1, 8)], [floats("y", 1, 8)], weights)


def inverted_residuals(path: Path, height: int = 640, width: int = 20) -> Path:
    """Two blocks of a 1x1, a depthwise and a 1x1 convolution with a shortcut; their mean is added.

    What lies between the convolutions of a block does not fit the cache of a core.
    """
    draw = np.random.default_rng(2)
    shapes = {"wide": (64, 8, 1, 1), "window": (64, 1, 3, 3), "narrow": (8, 64, 1, 1)}
    weights, nodes = {}, []
    for number, given in ((1, "image"), (2, "block1")):
        for name, shape in shapes.items():
            weights[f"{name}{number}"] = draw.normal(size=shape, scale=0.3).astype(np.float32)
        a, b, c, d, e = (f"{name}{number}" for name in "abcde")
        nodes += [
            helper.make_node("Conv", [given, f"wide{number}"], [a]),
            helper.make_node("Relu", [a], [b]),
            helper.make_node("Conv", [b, f"window{number}"], [c], group=64, pads=[1] * 4),
            helper.make_node("Relu", [c], [d]),
            helper.make_node("Conv", [d, f"narrow{number}"], [e]),
            helper.make_node("Add", [e, given], [f"block{number}"]),
        ]
    # Something to read the result, which the model's own output would turn.
    nodes.append(helper.make_node("GlobalAveragePool", ["block2"], ["mean"]))
    nodes.append(helper.make_node("Add", ["block2", "mean"], ["y"]))
    interface = [floats("image", 1, 8, height, width)], [floats("y", 1, 8, height, width)]
    return save(path, nodes, *interface, weights)


def cancelling(path: Path, wide: int = 256, layers: int = 4, large: float = 1000.0) -> Path:
    """Dense layers, the second of which subtracts what is large: "cancel" loses what is left in halves.

    The first adds 1000 to each of its results, whose spread is 1; numbers of bfloat16 are 4 apart there, and
    those of fp16 a half.
    """
    draw = np.random.default_rng(5)
    offset = np.full(wide, large, np.float32)

    def square(scale: float) -> np.ndarray:
        return (scale * draw.normal(size=(wide, wide)) / np.sqrt(wide)).astype(np.float32)

    weights = {"first": square(1.0), "up": offset, "eye": np.eye(wide, dtype=np.float32), "down": -offset}
    nodes = [
        helper.make_node("Gemm", ["rows", "first", "up"], ["high"], name="shift"),
        helper.make_node("Relu", ["high"], ["positive"], name="keep"),
        helper.make_node("Gemm", ["positive", "eye", "down"], ["h0"], name="cancel"),
    ]
    for number in range(layers):
        weights[f"w{number}"] = square(1.4)
        nodes.append(helper.make_node("Relu", [f"h{number}"], [f"r{number}"], name=f"relu{number}"))
        read, made = [f"r{number}", f"w{number}"], [f"h{number + 1}"]
        nodes.append(helper.make_node("MatMul", read, made, name=f"dense{number}"))
    return save(path, nodes, [floats("rows", 64, wide)], [floats(f"h{layers}", 64, wide)], weights)
